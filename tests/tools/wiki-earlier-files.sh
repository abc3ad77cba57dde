# A folder has the files of one run: those of an earlier one are refused, or replaced as a whole
# with --force. Files of other names stay.
. "$(dirname "$0")/prelude"
dump=$GOLDEN/tools/wiki.xml
files() { (cd "$1" && find . -type f | cut -c3- | sort | tr '\n' ' '); echo; }
wiki-extract -q "$dump" -o text -b 0 -ns 0,1,10 && files text
touch text/notes text/AA/notes text/AA/wiki_07.bak
mkdir text/AB text/Ab text/A && touch text/AB/wiki_05.bz2 text/Ab/wiki_00 text/A/wiki_00
echo "- refused"
run wiki-extract -q "$dump" -o text
run wiki-extract -q "$dump" -o text -c
rm text/AA/wiki_0?
run wiki-extract -q "$dump" -o text
files text
echo "- replaced"
touch text/AA/wiki_01 text/AA/wiki_02.bz2
wiki-extract -q "$dump" -o text --force && files text && ls text
wiki-extract -q "$dump" -o text -c --force && files text
bzcat text/AA/wiki_00.bz2 | cmp - <(wiki-extract -q "$dump" -o -) && echo same
echo "- no page"
run wiki-extract -q "$dump" -o text -ns 5
wiki-extract -q "$dump" -o text -ns 5 --force && files text
echo "- after a run that ended early"
mkdir -p early/AA && touch early/.unfinished early/AA/wiki_03
run wiki-extract -q "$dump" -o early
wiki-extract -q "$dump" -o early --force && files early
