# Hostile dumps need bounded time and memory: at most 480 MB of data and 20 seconds of processor
# time each, for two threads. Sizes are such that quadratic work, or memory for the whole, would
# exceed these limits.
. "$(dirname "$0")/prelude"
head='<mediawiki><siteinfo><sitename>W</sitename><base>https://x.org/wiki/Main</base></siteinfo>'
times() { yes -- "$2" | head -n "$1" | tr -d '\n'; } # COUNT TEXT
page_in() { # NAMESPACE TITLE: its text is the input
  printf '<page><title>%s</title><ns>%s</ns><id>1</id><revision><id>2</id><text>' "$2" "$1"
  cat
  printf '</text></revision></page>\n'
}
page() { page_in 0 "$1"; }
template() { page_in 10 "Template:$1"; }
bounded() {
  (ulimit -d ${memory:-480000} && ulimit -t 20 && wiki-extract --processes 2 "$@") | cksum >sum
  echo "exit ${PIPESTATUS[0]}"
}
n=10000
{ # ten thousand of everything, nested, closed and not
  echo "$head"
  { times $n '{{a|'; times $n '}}'; } | page templates
  { times $n '{|\n|a\n'; times $n '|}\n'; } | page tables
  { yes -- '{|' | head -n $n; yes '|}' | head -n $n; } | page table-lines
  for opening in '{{a|x ' '[[a|x ' '[[a x ' '[http://a x ' '&lt;div>x ' '{{{x|' "''x '''y " \
    '{{x|[[y|z '; do
    { times 200000 "$opening"; times 200000 ']]}}'; } | page growing
  done
  { times $n '[['; times $n ']]'; } | page links
  { times $n '[[File:a|'; times $n ']]'; } | page files
  { times $n '{{{'; times $n '}}}'; } | page parameters
  { times $n '&lt;div>'; times $n '&lt;/div>'; } | page elements
  for opening in '{{' '[[' '{{{' '&lt;ref>' '&lt;!--' '&lt;nowiki>' '&lt;math>' "''" "'''" '-{' \
    '[http://a ' '==' '&amp;' '{{#if:' '&lt;br'; do
    times 100000 "$opening" | page open
  done
  yes -- '{|' | head -n 100000 | page open-tables
  for opening in '{{' '[[' '{{{' '[[a|'; do
    { times 500000 "$opening"; yes '' | head -n 2000000; } | page paragraphs
  done
  yes '* * *' | head -n 100000 | page lists
  yes '== a ==' | head -n 100000 | page sections
  echo '</mediawiki>'
} >in.nested.xml
bounded in.nested.xml -o -
bounded in.nested.xml -o - --lists --links --html-safe --math source
{ # templates that call each other twice, themselves, and with arguments that grow
  echo "$head"
  for i in $(seq 60); do
    printf '{{L%s}}{{L%s}}' $((i + 1)) $((i + 1)) | template "L$i"
  done
  printf 'x{{Self}}' | template Self
  printf '{{Grow|{{{1}}}{{{1}}}}}' | template Grow
  echo '{{L1}} {{Self}} {{Grow|0123456789}}' | page laughs
  times 2000 '{{L1}}' | page many-laughs
  times 3000 '{{Grow|0123456789}}' | page much-growth
  echo '</mediawiki>'
} >in.laughs.xml
bounded in.laughs.xml --templates laughs.templates -o -
{ # templates that give no text and are long, or have very many parts; a call of very many arguments
  echo "$head"
  { printf '{{#if:|'; times 200000 0123456789; printf '}}'; } | template Long
  { printf '{{#switch:x'; times 1000000 '|'; printf '}}'; } | template Switch
  { printf '{{Many'; times 32768 '|'; printf '}}'; } | template Call
  echo '{{{1}}}' | template Many
  times 100000 '{{Long}}' | page longs
  times 20000 '{{Switch}}' | page switches
  times 20000 '{{Call}}' | page calls
  for _ in 1 2 3; do times 100000 '{{#ifexist:Long|.}}' | page tests; done
  { printf '{{Many'; times 8000000 '|'; printf '}}'; } | page many
  echo '</mediawiki>'
} >in.costly.xml
bounded in.costly.xml --templates costly.templates -o -
{ echo "$head"; times 5000000 '<a>' | page deep; echo '</mediawiki>'; } >in.deep.xml
bounded in.deep.xml --on-error skip -o -
# 100 MB of nothing behind the end
{
  echo "$head"; echo a | page a; echo '</mediawiki>'
  head -c 100000000 /dev/zero | tr '\0' '\n'
} | memory=70000 bounded - -o -
# templates of 200 MB are not held in memory
awk 'BEGIN {
  s = "abcdefghi "
  while (length(s) < 500000) s = s s
  for (i = 0; i < 300; i++)
    print "<page><title>Template:T" i "</title><ns>10</ns><id>1</id><revision><id>2</id><text>" \
        s i "</text></revision></page>"
}' >in.templates
{
  echo "$head"
  for i in $(seq 0 7 300); do echo "{{t$i}}" | page "$i"; done
  echo '</mediawiki>'
} >in.calls.xml
(ulimit -d 180000 && wiki-extract in.calls.xml --processes 2 --templates in.templates -o -) |
  LC_ALL=C sed 's/.* / /' | tr -d '\n'
echo
{ # a page of 30 MB; as a bzip2 file it is a few hundred bytes
  echo "$head"; times 30000 "$(printf 'a%.0s' $(seq 1000))" | page long
  echo end | page short; echo '</mediawiki>'; } | bzip2 >in.long.xml.bz2
bounded in.long.xml.bz2 -o -
bounded in.long.xml.bz2 -o - --on-error skip
# blocks of bzip2 that unpack to 31 MB each, in pages of a hundred kilobytes
awk 'BEGIN {
  srand(1)
  for (i = 0; i < 26; i++) {
    c = sprintf("%c", 97 + i); s = ""
    while (length(s) < 255) s = s c
    letters[i] = s
  }
  for (p = 0; p < 300; p++) {
    printf "<page><title>%d</title><ns>0</ns><id>1</id><revision><id>2</id><text>", p
    for (i = 0; i < 400; i++) printf "%s", letters[int(rand() * 26)]
    print "</text></revision></page>"
  }
}' | bzip2 >in.block.bz2
{ echo "$head" | bzip2
  for i in 1 2 3 4; do echo "$i" | page "$i" | bzip2; cat in.block.bz2; done
  echo '</mediawiki>' | bzip2; } >in.runs.xml.bz2
memory=260000 bounded in.runs.xml.bz2 -o -
(ulimit -d 260000 && for part in 1/3 2/3 3/3; do
  wiki-extract -q --processes 2 in.runs.xml.bz2 --range $part -o -
done) | cksum | cmp - sum && echo "its parts are the whole"
{ # pages just within the limit, many at a time
  echo "$head"
  yes "'''a''b[[c|d]]{{e}}&amp;lt;" | head -c 15000000 | tr -d '\n' >in.text
  for i in 1 2 3; do page "$i" <in.text; done
  echo '</mediawiki>'; } >in.large.xml
bounded in.large.xml -o -
{
  echo "$head"
  head -c 3000000 /dev/zero | tr '\0' '<' | page bad
  echo '</mediawiki>'
} >in.bad.xml
bounded in.bad.xml -o -
left
