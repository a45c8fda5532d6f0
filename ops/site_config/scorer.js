/* Order of the search's results: what readers do first, then reasons and numbered rules. */
const LATER = ["docs/decisions/", "docs/rules/", "CHANGELOG"];

var Scorer = {
  score: ([docname, , , , score]) => score - (LATER.some((start) => docname.startsWith(start)) ? 12 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
