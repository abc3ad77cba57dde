// SPDX-License-Identifier: MIT
// Redirects recognised by their text (dump.h): a keyword of one of MediaWiki's languages and a
// link. Dumps from before 2009, and of other programs, have no <redirect> element. Source: the
// keywords in MediaWiki's message files, for languages that have a Wikipedia.

#include <algorithm>
#include <array>

#include "tools/wiki/dump.h"

namespace wiki {
namespace {

// Without the '#', in fold_case's form.
constexpr std::array<std::string_view, 138> kKeywords = {
    "aanstuur",
    "adkas",
    "ail-cyfeirio",
    "ailgyfeirio",
    "al",
    "aliah",
    "alidirekti",
    "alidirektu",
    "alih",
    "ancaminar",
    "athsheoladh",
    "aýdaw",
    "beralîkirin",
    "birzuzendu",
    "daskedyans",
    "dirección",
    "dirijar",
    "doorverwijzing",
    "endrecera",
    "fihodinana",
    "hetenayiş",
    "istiqamətləndir",
    "istiqamətləndirmə",
    "kiahou",
    "kúfù",
    "leidt_öm_op",
    "lencong",
    "ohjaus",
    "omdiriger",
    "omdirigering",
    "ođđasitstivren",
    "patrz",
    "peradresavimas",
    "presmeruj",
    "preusmeri",
    "preusmeritev",
    "preusmjeri",
    "przekieruj",
    "pupinah",
    "pusapuna",
    "přesměruj",
    "redireccion",
    "redirección",
    "redirecionamento",
    "redirect",
    "redirecteaza",
    "redirection",
    "redirèccion",
    "reendrecera",
    "renviament",
    "ridrejto",
    "rimando",
    "rindirizza",
    "rinvia",
    "rinvio",
    "stir",
    "stivren",
    "suuna",
    "tam",
    "tilvísun",
    "uudelleenohjaus",
    "varda",
    "viruleedung",
    "weiterleitung",
    "wiederleiden",
    "yonaltirish",
    "yoʻnaltirish",
    "yönlendir",
    "yönlendirme",
    "yönnendir",
    "yönnendirmä",
    "yönnendirmäkler",
    "átirányítás",
    "æрвитæн",
    "æрвыст",
    "ömleide",
    "ömleide_op",
    "ömleidung",
    "đổi",
    "ανακατευθυνση",
    "айдау",
    "види",
    "виж",
    "джибериу",
    "дӏасахьажор",
    "көжүрүлге",
    "перанакіраванне",
    "перенапр",
    "перенаправление",
    "перенаправлення",
    "пренасочване",
    "пренасочување",
    "преусмери",
    "преусмјери",
    "прѣнаправлєниѥ",
    "рарвыст",
    "редирект",
    "хьажайо",
    "чиглүүлэг",
    "шигледир",
    "юнәлтү",
    "վերահղում",
    "הפניה",
    "ווייטערפירן",
    "بور",
    "تحويل",
    "تغییر مسیر",
    "تغییر_مسیر",
    "تغییرمسیر",
    "رجوع_مکرر",
    "چوريو",
    "ܨܘܝܒܐ",
    "अनुप्रेषित",
    "पुनर्निदेशन",
    "पुनर्निर्देशन",
    "पुनर्प्रेषित",
    "पुर्ननिर्देशन",
    "পুনর্নির্দেশ",
    "ਰੀਡਿਰੈਕਟ",
    "ଲେଉଟାଣି",
    "வழிமாற்று",
    "దారిమార్పు",
    "തിരിച്ചുവിടുക",
    "തിരിച്ചുവിടൽ",
    "යළියොමුව",
    "เปลี่ยนทาง",
    "გადამისამართება",
    "បញ្ជូនបន្ត",
    "ប្ដូរចំណងជើង",
    "ប្ដូរទីតាំង",
    "ប្ដូរទីតាំងទៅ",
    "ប្តូរទីតាំង",
    "ប្តូរទីតាំងទៅ",
    "リダイレクト",
    "転送",
    "重定向",
    "重新導向",
    "넘겨주기",
};

// Length of the keyword at the front of `text`, after its '#'; a space in it may be any of the
// page's.
size_t keyword_length(std::string_view text) {
  const size_t end = std::min(text.find_first_of("[:\n"), text.size());
  const std::string_view word = trim(text.substr(0, end));
  std::string folded = fold_case(word);
  for (size_t at; (at = folded.find("\xCC\x87")) != folded.npos;) folded.erase(at, 2);  // of İ
  const bool known = std::find(kKeywords.begin(), kKeywords.end(), folded) != kKeywords.end();
  return known ? end : 0;
}

}  // namespace

std::optional<std::string> redirect_target(std::string_view text) {
  constexpr size_t kLongest = 1024;  // keyword and title
  text = trim(text.substr(0, std::min(text.find_first_not_of(" \t\n") + kLongest, text.size())));
  if (text.starts_with('#')) {
    text.remove_prefix(1);
  } else if (text.starts_with("＃")) {
    text.remove_prefix(std::string_view("＃").size());
  } else {
    return std::nullopt;
  }
  const size_t length = keyword_length(text.substr(0, 64));
  if (length == 0) return std::nullopt;
  text = trim(text.substr(length));
  if (text.starts_with(':')) text = trim(text.substr(1));
  const size_t end = text.find("]]");
  if (!text.starts_with("[[") || end == text.npos) return std::nullopt;
  const std::string_view link = text.substr(2, end - 2);
  std::string_view title = trim(link.substr(0, link.find_first_of("|#")));
  if (title.starts_with(':')) title = trim(title.substr(1));
  return std::string(title);
}

}  // namespace wiki
