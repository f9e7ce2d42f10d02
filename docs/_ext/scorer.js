// Order of search results: parameters first, development pages last.
// The numbers are Sphinx's defaults; `score` adds to them.
var Scorer = {
  score: function (result) {
    const [page, title, anchor, , score] = result;
    const isParameter = anchor && !title.replace("Parameters > ", "").includes(" ");
    if (page === "reference/parameters") return score + (isParameter ? 25 : 3);
    if (page.startsWith("development/")) return score - 3;
    if (page.startsWith("gallery/")) return score - 3;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
