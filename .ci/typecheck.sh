#!/usr/bin/env bash
# mypy and import-linter do not see that zoo/ is kerasformer.zoo and export/ is kerasformer.export.
# This lays out .typecheck/kerasformer with links at their mapped places and runs both on it; training scripts
# stay out, for they are no modules of the package.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf .typecheck
mkdir .typecheck
link() { # link SOURCE PACKAGE: real folders (import-linter follows no linked folder), linked files
    find "$1" \( -name '*.py' -o -name '*.pyi' \) -not -path '*/presets/*' -not -path '*/moved/*' -print | while read -r file; do
        mkdir -p "$(dirname ".typecheck/$2/${file#"$1"/}")"
        ln -s "$PWD/$file" ".typecheck/$2/${file#"$1"/}"
    done
}
link kerasformer kerasformer
link zoo kerasformer/zoo
link export kerasformer/export

status=0
python -m mypy .typecheck/kerasformer || status=1
(cd .typecheck && lint-imports --config ../pyproject.toml) || status=1
exit "$status"
