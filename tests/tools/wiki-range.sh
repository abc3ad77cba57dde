# wiki-extract --range K/N: the parts in order equal the whole, for any N and wherever the cuts are,
# with the counts of the whole; from plain XML and from bzip2 of one stream or of streams that end
# inside pages. What cannot be divided is refused.
. "$(dirname "$0")/prelude"
dump=$GOLDEN/tools/wiki.xml
{ # some 400 KB; pages of all lengths, one that lacks its end
  sed -n '1,/<\/siteinfo>/p' "$dump"
  for i in $(seq 150); do
    sed '1,/<\/siteinfo>/d;/^<\/mediawiki>/d' "$dump"
    text=$(head -c $((i * 37)) /dev/urandom | base64 -w 70)
    printf '<page><title>%s</title><ns>0</ns><id>1</id><revision><id>2</id><text>' "$i"
    printf '%s</text></revision></page>\n' "$text"
    [ "$i" != 70 ] || printf '<page><title>no end</title>\n'
  done
  echo '</mediawiki>'
} >in.xml
bzip2 -1 -c in.xml >in.one.bz2
split -b 30000 in.xml in.cut. && for f in in.cut.*; do bzip2 -c "$f"; done >in.many.bz2
(printf '\357\273\277'; cat in.xml) >in.marked.xml
wiki-extract in.xml -o - --on-error skip --processes 1 >in.whole 2>in.note
add_up() {
  awk '/ pages? = / {
      gsub(",", "")
      pages += $2; written += $5; redirects += $8; other += $11; filtered += $16; rejected += $19
    }
    END { print pages, written, redirects, other, filtered, rejected }' "$1"
}
whole=$(add_up in.note)
for file in in.xml in.one.bz2 in.many.bz2 in.marked.xml; do
  for parts in 2 3 11; do
    for k in $(seq "$parts"); do
      wiki-extract "$file" -o - --on-error skip --processes $((k % 3 + 1)) \
        --range "$k/$parts" 2>>in.notes
    done | cmp - in.whole && [ "$(add_up in.notes)" = "$whole" ] &&
      echo "$file: $parts parts are the whole"
    rm in.notes
  done
done
bzip2 -k "$dump" -c >in.small.bz2
for file in "$dump" in.small.bz2; do # more parts than pages, than blocks, than bytes between them
  for k in $(seq 15); do
    wiki-extract -q "$file" -o - --processes 1 --range "$k/15"
  done | cmp - <(wiki-extract -q "$dump" -o -) && echo same
done
head -c 300000 in.xml >in.short.xml
for k in 1 2 3; do
  run wiki-extract -q in.short.xml --range "$k/3" -o - --on-error skip >in.part
  grep ^exit in.part
done
gzip -k in.xml
run wiki-extract in.xml.gz -o out --range 1/2
run wiki-extract -o out --range 2/2 <in.xml
run wiki-extract in.xml -o out --range 1/2 --templates none
run wiki-extract in.xml --templates-only
left
