# Every name that the file system takes: outputs of up to 255 bytes, whose temporary files have
# shorter names, and datasets whose names have no room for a manifest's.
. "$(dirname "$0")/prelude"
name() { printf "%0$1d" 0; }
said() { # what a command says, with its names as N, and the lengths of the names there are then
  "$@" 2>&1 | sed -E 's/0{100,}/N/g'
  echo "status ${PIPESTATUS[0]}: $(find . -mindepth 1 -printf '%f\n' | awk '{ print length($0) }' |
    sort -n | tr '\n' ' ')"
}
in=$GOLDEN/tools/lines.jsonl
for size in 239 240 255 256; do said json-extract -q -o "$(name $size)" "$in"; rm -f 0*; done
said near-dedup -q -o "$(name 255)" "$in"; rm -f 0*
said bpe-train -q --vocab-size 280 -o "$(name 255)" "$in"; rm -rf 0*
for size in 232 233; do
  said bpe-tokenize -q $VOCAB --output-prefix "$(name $size)" "$in"; rm -f 0*
done
said bpe-tokenize -q $VOCAB --no-manifest --output-prefix "$(name 237)" "$in"
long=$(name 251)
mv "$(name 237)_text_document.bin" "$long.bin" && mv "$(name 237)_text_document.idx" "$long.idx"
said inspect-dataset -q "$long"
said merge-datasets -q --output-prefix merged "$long" "$long.idx"
said merge-datasets -q --output-prefix "$(name 247)" "$long"
mkdir folder
said merge-datasets -q --no-manifest --output-prefix "folder/$long" merged
cmp merged.bin "folder/$long.bin" && echo equal
said shuffle-index -q --rewrite shuffled --data-path "folder/$long"
