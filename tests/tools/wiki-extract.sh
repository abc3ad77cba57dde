# Every page is accounted for; the same bytes from any packing and any number of threads; files
# of a size, packed or not.
. "$(dirname "$0")/prelude"
cp "$GOLDEN/tools/wiki.xml" in.xml
dump=in.xml
run wiki-extract "$dump" -o -
run wiki-extract "$dump" -o - --redirects --lists --min_text_length 12 -q
run wiki-extract "$dump" -o - --templates templates.xml
run wiki-extract "$dump" -o text -b 1K -ns 0,1,10 --processes 3
cat text/AA/wiki_00 | wc -l
run wiki-extract "$dump" -o text
run wiki-extract "$dump" -o packed -c -b 0 -q --processes 2
bzcat packed/AA/wiki_0?.bz2 | wc -l
wiki-extract -q "$dump" -o - --processes 1 >plain
for pack in gzip bzip2 xz zstd; do
  $pack -c "$dump" >in.packed && wiki-extract -q in.packed -o - --processes 4 | cmp - plain &&
    wiki-extract -q -o - <in.packed | cmp - plain && echo "same from $pack"
done
{ sed -n '1,/<\/siteinfo>/p' "$dump"
  for _ in $(seq 1000); do sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$dump"; done
  echo '</mediawiki>'; } >in.long.xml && bzip2 -k in.long.xml
for processes in 1 2 5; do
  wiki-extract -q in.long.xml.bz2 -c -b 1M -o "long.$processes" --processes $processes
done
wiki-extract -q in.long.xml -c -b 1M -o long.xml
for folder in long.2 long.5 long.xml; do
  diff -r long.1 $folder && echo "$folder: packed the same"
done
iconv -f UTF-8 -t UTF-16LE "$dump" | (printf '\377\376'; cat) | bzip2 >in.utf16 &&
  wiki-extract -q in.utf16 -o - | cmp - plain && echo "same from UTF-16"
