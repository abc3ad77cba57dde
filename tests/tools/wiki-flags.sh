# WikiExtractor's flags, one by one: each does what it does there, or is refused by name.
. "$(dirname "$0")/prelude"
sed 's|<namespace key="10">|<namespace key="1">Talk</namespace>&|
  s|the \[\[number|AT\&amp;amp;T, a \&amp;lt; b, &|' "$GOLDEN/tools/wiki.xml" >in.xml
lines() { wiki-extract -q in.xml "$@" -o - | wc -l; }
wiki-extract -q in.xml --json -b 1M -o text && cat text/AA/wiki_00 >in.plain
same() { wiki-extract -q in.xml "$@" -o - | cmp - in.plain && echo "the same: $*"; }
same --json
same --processes 3
same --no-templates
same --debug
same --debug_map_reduce --verbose
same -s
same --sections
same --html-safe False
same --html-safe 0
same --min_text_length 0
same -ns 0
same --namespaces 0
for value in '' True 1; do
  wiki-extract -q in.xml --html-safe $value -o - | grep -c '&[lg]t;\|&amp;'
done
wiki-extract -q in.xml --links -o - | grep -c '<a href='
wiki-extract -q in.xml -l -o - | grep -c '<a href='
lines -ns Talk; lines -ns Talk,Template; lines -ns 1; lines --namespaces 0,1,10
run lines -ns Nowhere
run lines -ns 0,,1
lines --min_text_length 12; lines --discard_empty
lines --redirects; lines --redirects --discard_empty
wiki-extract -v
wiki-extract in.xml -q --output one --bytes 0 && ls one/AA | wc -l
wiki-extract in.xml -q -c -o packed && bzcat packed/AA/wiki_00.bz2 | cmp - in.plain &&
  echo "the same: -c"
wiki-extract in.xml -q --compress -b 1K -o packed1K && ls packed1K/AA
wiki-extract in.xml -q --templates in.templates -o - | cmp -s - in.plain ||
  echo "templates change the text"
for flag in --html --text -a --article --revision --keep_tables --filter_disambig_pages \
  '--filter_category x' \
  '--ignored_tags b' '--discard_elements b' '--log_file x'; do
  run wiki-extract in.xml $flag -o none
done
left
