# What MediaWiki shows where references, protected text and links stand between numbers and marks of
# emphasis, with and without --templates, and the parts of titles.
. "$(dirname "$0")/prelude"
{ sed -n 1,2p "$GOLDEN/tools/wiki.xml" |
    sed 's|<base>|<case>first-letter</case>&|
      s|<namespace key="10">|<namespace key="1">Talk</namespace>&|'
  id=1
  while IFS= read -r text; do
    printf '<page><title>P%s</title><ns>0</ns><id>%s</id><revision><id>1</id><text>' "$id" "$id"
    printf '%s' "$text" | sed 's/&/\&amp;/g;s/</\&lt;/g'
    printf '</text></revision></page>\n'
    id=$((id + 1))
  done <<'END'
{{uc:[[5]]<ref>a</ref>[[6]]a}} and [[5]]{{#tag:ref|a}}[[6]] and {{formatnum:1234<ref>a</ref>}}
''Alpha''<ref>x</ref>''Beta'' and ''Alpha''<!-- x -->''Beta''
''Alpha''<nowiki/>''Beta'' and ''Alpha''[[x|''Beta'']] and '''{{lang|fr|''Alpha''}}'''
The ''Iliad''{{'}}s and l'<nowiki/>''amour''
Parts: {{#titleparts:talk:a/b/c|-1}} {{#titleparts:a/b/c|1|-2}} {{#titleparts:a/[[b]]|1}}
END
  echo '</mediawiki>'; } >in.xml
text() { wiki-extract -q in.xml "$@" -o - | sed 's/.*"text": //'; }
text
text --templates templates.xml
# A link that removes the place where an open tag began has ended the run.
{ sed -n 1,2p "$GOLDEN/tools/wiki.xml"
  printf '<page><title>A</title><ns>0</ns><id>1</id><revision><id>2</id><text>%s\n%s' 'a [[' \
    '&lt;sup>]][[</text></revision></page></mediawiki>'; } >in.link.xml
wiki-extract -q in.link.xml -o - | sed 's/.*"text": //'
