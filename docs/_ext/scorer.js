// Order of search results: parameters first, then pages whose title has the words of the query,
// development pages last. The numbers are Sphinx's defaults; `score` adds to them.
const QUERY = (new URLSearchParams(window.location.search).get("q") || "")
  .toLowerCase()
  .split(/\s+/)
  .filter((word) => word.length > 2);

function fractionInTitle(title) {
  const words = QUERY.filter((word) => title.toLowerCase().includes(word.replace(/s$/, "")));
  return words.length / Math.max(QUERY.length, 1);
}

var Scorer = {
  score: function (result) {
    const [page, title, anchor, , score] = result;
    const isParameter = anchor && !title.replace("Parameters > ", "").includes(" ");
    if (page === "reference/parameters") return score + (isParameter ? 25 : 3);
    if (page.startsWith("development/")) return score - 3;
    if (page.startsWith("gallery/")) return score - 3;
    return anchor ? score : score + 6 * fractionInTitle(title);
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
