# Input that is truncated, damaged, hostile or not a dump: one line with place and reason, no files
# under final names.
. "$(dirname "$0")/prelude"
cp "$GOLDEN/tools/wiki.xml" in.xml
dump=in.xml
head -c 900 "$dump" >cut.xml
run wiki-extract cut.xml -o cut
bzip2 -c "$dump" | head -c 300 >cut.bz2
run wiki-extract cut.bz2 -o cut
{ bzip2 -c "$dump"; echo garbage; } >tail.bz2
run wiki-extract tail.bz2 -o cut
sed 's/chat/\&lol;/' "$dump" >entity.xml
run wiki-extract entity.xml -o cut -ns 0,1
run wiki-extract entity.xml -o - -ns 0,1 --on-error skip
for id in x '' 5x 99999999999999999999; do
  sed "s|<id>1</id>|<id>$id</id>|" "$dump" >number.xml
  run wiki-extract number.xml -o cut
done
sed 's|<ns>1</ns>|<ns>one</ns>|;s|<id>11</id>|<id>1.1</id>|' "$dump" >number.xml
run wiki-extract number.xml -o - -ns 0,1 --on-error skip
{ printf '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'; cat "$dump"; } >bomb.xml
run wiki-extract bomb.xml -o cut
echo 'hello' >text.txt
run wiki-extract text.txt -o cut
: >empty
run wiki-extract empty -o cut
run wiki-extract nothing.xml -o cut
{ printf '\377\376'; iconv -f UTF-8 -t UTF-16LE "$dump"; } >utf16.xml
run wiki-extract utf16.xml -o cut
gzip utf16.xml
wiki-extract -q utf16.xml.gz -o - | cmp - <(wiki-extract -q "$dump" -o -) && echo "packed: the same"
run wiki-extract "$dump" "$dump"
run wiki-extract "$dump" -o cut -ns x
find . -name 'wiki_*' -o -name '.*.tmp' | sort
