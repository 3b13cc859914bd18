#!/bin/sh
# Copies the files of each bundle that the app needs into its resources: BUNDLES=FOLDER, by default `bundles` beside it.
set -eu
from=${BUNDLES:-$SRCROOT/bundles}
to="$TARGET_BUILD_DIR/$UNLOCALIZED_RESOURCES_FOLDER_PATH/bundles"
rm -rf "$to"
found=no
for bundle in "$from"/*/; do
    [ -f "$bundle/kerasformer.json" ] || continue
    found=yes
    mkdir -p "$to/$(basename "$bundle")/onnx"
    for file in "$bundle"kerasformer.json "$bundle"onnx/*.onnx* "$bundle"*tokenizer*.json "$bundle"generation_config.json; do
        [ ! -f "$file" ] || cp "$file" "$to/$(basename "$bundle")/${file#"$bundle"}"
    done
done
if [ "$found" = no ]; then
    echo "error: no bundle in $from. Export some with kerasformer, see README.md, and name their folder with BUNDLES" >&2
    exit 1
fi
