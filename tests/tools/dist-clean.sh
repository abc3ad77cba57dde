# make clean removes what Makefile.dist made in WORK and nothing else, whatever the
# folder is called.
. "$(dirname "$0")/dist_prelude"
for program in wiki-extract json-extract bpe-tokenize merge-datasets; do
  ln -s "$(command -v $program)" bin/$program
done
head -n 5 "$GOLDEN/tools/corpus.jsonl" >lines.jsonl
sed '/<\/mediawiki>/q' "$GOLDEN/tools/wiki.xml" >dump.xml
dist() {
  make -s -f "$dist" "${settings[@]}" "$@" 2>&1 | sed 's/.*\*\*\* //;/: clean\] Error 1$/d'
  return "${PIPESTATUS[0]}"
}
inputs=(INPUT="dump.xml lines.jsonl" WIKI_TEMPLATES=yes)

echo "== of other people"
mkdir my work "my work" -- -rf; touch my/a work/a "my work/a" -- -rf/a
run dist WORK="my work" clean
run dist WORK=-rf clean
run dist WORK=. clean
run dist WORK= clean
run dist WORK=none clean
run dist WORK="my work" "${inputs[@]}" dataset
run dist WORK=-rf "${inputs[@]}" dataset
run dist WORK= "${inputs[@]}" dataset
run dist WORK="my work" status
run dist WORK=made KEY="text /tmp" "${inputs[@]}" dataset
ls ./my ./work "./my work" ./-rf

echo "== ours, whatever it is called"
dist WORK=made "${inputs[@]}" dataset >/dev/null
touch made/slurm/extract-12_3.log made/slurm/extract.AbC123.list
for name in "my made" -made $'a\nb' 'it'"'"'s;x' '*' '?' 'a:b' 'a=b' 'a%b#c' '--help'; do
  cp -r made ./"$name"
  dist WORK="$name" clean || echo "status $?"
  [ ! -e ./"$name" ] || echo "still there: $name"
done
cp -r made ./a; cp -r made ./b
WORK=a make -s -f "$dist" clean; [ -e a ] || echo "named by the environment"
dist WORK="$PWD/b/" clean; [ -e b ] || echo "by its whole path"
mv made linked; ln -s linked link
dist WORK=link clean; ls -A link/ && echo "a link stays, and the folder behind it"
ls lines.jsonl dump.xml my work

echo "== ours beside theirs"
mkdir -p shared/templates shared/text-mine
touch shared/templates/letter.xml shared/text-mine/a shared/.hidden shared/settings.mk
dist WORK=shared "${inputs[@]}" dataset >/dev/null
echo mine >shared/run-0123456789abcdef
mkdir shared/hf-0123456789ab.bak && echo a copy >shared/hf-0123456789ab.bak/a
run dist WORK=shared clean
find shared -type f | sort
