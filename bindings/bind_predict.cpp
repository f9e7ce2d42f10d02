// Bindings of Tree and Forest: arrays are checked, and read-only views are returned.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "context_caster.h"
#include "conversions.h"
#include "device/predictor.h"
#include "explain/explainer.h"
#include "forest/forest.h"
#include "forest/row_predictor.h"
#include "grower/tree.h"
#include "leaf_blocks.h"
#include "leaves/leaf_kinds.h"
#include "stored_trees.h"

namespace polyleaf {

namespace {

// Define a read-only property for an array of the tree with one entry per node.
template <class T, class Member>
void def_nodes(nb::class_<Tree>& cls, const char* name, Member member, const char* doc) {
  cls.def_prop_ro(
      name,
      [member](nb::handle self) {
        const auto& data = nb::cast<const Tree&>(self).*member;
        return view<T>(data.data(), {data.size()}, self);
      },
      doc);
}

std::shared_ptr<Tree> tree_from_arrays(
    Array1<const int32_t> feature, Array1<const int32_t> threshold, Array1<const bool> missing_left,
    Array1<const int32_t> left, Array1<const int32_t> right, Array1<const int32_t> leaf,
    Array1<const int32_t> category_set, Array2<const uint64_t> categories,
    Array1<const double> gain, Array1<const int64_t> count, Array1<const double> cover,
    Array2<const float> output_gain, std::optional<int32_t> n_features) {
  require_four_words(categories);
  if (output_gain.shape(0) != feature.size())
    throw std::invalid_argument("`output_gain` must have one row for each of the " +
                                std::to_string(feature.size()) + " nodes, but has " +
                                std::to_string(output_gain.shape(0)) + ".");
  const NodeArrays nodes{feature, threshold,    missing_left, left,  right,
                         leaf,    category_set, gain,         count, cover};
  const SetsAndGains others{categories.data(), categories.shape(0), output_gain.data(),
                            static_cast<int32_t>(output_gain.shape(1))};
  auto tree = std::make_shared<Tree>();
  nodes.read(0, SIZE_MAX, others, n_features.value_or(kMaxFeatures), *tree);
  return tree;
}

void bind_tree(nb::module_& m) {
  nb::class_<Tree> cls(
      m, "Tree",
      "Structure of one tree: splits on feature codes and numbered leaves.\n\n"
      "Every array has one entry per node; node 0 is the root, and children come after\n"
      "their parent. Arrays are read-only views.");
  cls.def_prop_ro("n_nodes", &Tree::n_nodes)
      .def_ro("n_leaves", &Tree::n_leaves)
      .def_ro("n_outputs", &Tree::n_outputs);
  def_nodes<int32_t>(cls, "feature", &Tree::feature, "int32; -1: leaf");
  def_nodes<int32_t>(cls, "threshold", &Tree::threshold,
                     "int32; last code that goes left; -1: categorical or leaf");
  def_nodes<bool>(cls, "missing_left", &Tree::missing_left,
                  "bool; whether missing values (code 255) go left");
  def_nodes<int32_t>(cls, "left", &Tree::left, "int32; -1: leaf");
  def_nodes<int32_t>(cls, "right", &Tree::right, "int32; -1: leaf");
  def_nodes<int32_t>(cls, "leaf", &Tree::leaf, "int32; leaf id; -1: inner node");
  def_nodes<int32_t>(cls, "category_set", &Tree::category_set,
                     "int32; row of `categories`; -1: numeric or leaf");
  def_nodes<double>(cls, "gain", &Tree::gain,
                    "float64; gain of the split, averaged over outputs; 0 for a leaf");
  def_nodes<int64_t>(cls, "count", &Tree::count, "int64; training rows of the sample");
  def_nodes<double>(cls, "cover", &Tree::cover, "float64; sum of Hessians, averaged over outputs");
  cls.def_prop_ro(
      "categories",
      [](nb::handle self) {
        const Tree& tree = nb::cast<const Tree&>(self);
        return view<uint64_t>(tree.categories.data(), {tree.categories.size(), 4}, self);
      },
      "uint64 (n_sets, 4); bit c: code c goes left");
  cls.def_prop_ro(
      "output_gain",
      [](nb::handle self) {
        const Tree& tree = nb::cast<const Tree&>(self);
        return view<float>(tree.output_gain.data(),
                           {tree.feature.size(), static_cast<size_t>(tree.n_outputs)}, self);
      },
      "float32 (n_nodes, n_outputs); contribution of each output to gain * n_outputs");
  cls.def_static("from_arrays", &tree_from_arrays, nb::kw_only(), nb::arg("feature"),
                 nb::arg("threshold"), nb::arg("missing_left"), nb::arg("left"), nb::arg("right"),
                 nb::arg("leaf"), nb::arg("category_set"), nb::arg("categories"), nb::arg("gain"),
                 nb::arg("count"), nb::arg("cover"), nb::arg("output_gain"),
                 nb::arg("n_features") = nb::none(),
                 "Create a tree from arrays.\n\n"
                 "Raises ValueError unless they describe one tree on n_features features.");
}

// Move a vector into a NumPy array.
template <class T>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T>&& data) {
  auto* owned = new std::vector<T>(std::move(data));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  static T nothing{};
  return nb::ndarray<nb::numpy, T>(owned->empty() ? &nothing : owned->data(), {owned->size()},
                                   owner);
}

TreeRange tree_range(const Forest& forest, int32_t first, std::optional<int32_t> last) {
  return {first, last.value_or(forest.n_trees())};
}

void predict(const Forest& forest, const Array2<const uint8_t>& codes, const Array2<float>& raw,
             int32_t first, std::optional<int32_t> last, const Context& context,
             const AnyFeatures& features) {
  if (raw.shape(0) != codes.shape(1) || raw.shape(1) != static_cast<size_t>(forest.n_outputs()))
    throw std::invalid_argument(
        "`raw` must have shape (n_rows, n_outputs) = (" + std::to_string(codes.shape(1)) + ", " +
        std::to_string(forest.n_outputs()) + "), but has shape (" + std::to_string(raw.shape(0)) +
        ", " + std::to_string(raw.shape(1)) + ").");
  const TreeRange range = tree_range(forest, first, last);
  nb::gil_scoped_release release;
  forest.predict(code_matrix(codes), feature_matrix(features), raw.data(), range, context);
}

const double* outputs_data(const Forest& forest, const Optional1<const double>& array,
                           const char* name) {
  if (!array) return nullptr;
  if (array->size() != static_cast<size_t>(forest.n_outputs()))
    throw std::invalid_argument(std::string("`") + name + "` must have one value for each of the " +
                                std::to_string(forest.n_outputs()) + " outputs, but has " +
                                std::to_string(array->size()) + ".");
  return array->data();
}

ScoreTransform score_unit(const Forest& forest, const Optional1<const double>& base,
                          const Optional1<const double>& scale,
                          const Optional1<const double>& offset) {
  const ScoreTransform transform{outputs_data(forest, base, "base"),
                                 outputs_data(forest, scale, "scale"),
                                 outputs_data(forest, offset, "offset")};
  if ((transform.scale == nullptr) != (transform.offset == nullptr))
    throw std::invalid_argument(
        "`scale` and `offset` must be given together: give both or neither.");
  if (transform.scale != nullptr && transform.base == nullptr)
    throw std::invalid_argument("`scale` and `offset` need a `base`.");
  return transform;
}

nb::ndarray<nb::numpy, double> scores(const Forest& forest, const Array2<const uint8_t>& codes,
                                      const Array1<const double>& base,
                                      const Optional1<const double>& scale,
                                      const Optional1<const double>& offset, int32_t first,
                                      std::optional<int32_t> last, const Context& context,
                                      const AnyFeatures& features,
                                      const Optional1<const int32_t>& coded) {
  const FeatureIds some =
      coded ? FeatureIds(coded->data(), coded->data() + coded->size()) : FeatureIds();
  require(!coded || some.size() == codes.shape(0),
          "codes must have one row for each of the features `coded`.");
  for (size_t i = 0; i < some.size(); ++i)
    require(some[i] >= 0 && (i == 0 || some[i - 1] < some[i]),
            "`coded` must ascend from 0 or above.");
  const ScoreTransform transform = score_unit(forest, base, scale, offset);
  const TreeRange range = tree_range(forest, first, last);
  NewArray<double> result({codes.shape(1), static_cast<size_t>(forest.n_outputs())});
  {
    nb::gil_scoped_release release;
    forest.scores(code_matrix(codes), coded ? &some : nullptr, feature_matrix(features), transform,
                  result.data, range, context);
  }
  return result.array;
}

nb::tuple topk(const Forest& forest, const Array2<const uint8_t>& codes,
               const Optional1<const double>& base, int32_t k, const Optional1<const double>& scale,
               const Optional1<const double>& offset, int32_t first, std::optional<int32_t> last,
               const Context& context, const AnyFeatures& features) {
  const ScoreTransform transform = score_unit(forest, base, scale, offset);
  const TreeRange range = tree_range(forest, first, last);
  const size_t n_columns = static_cast<size_t>(std::max(0, k));
  NewArray<int32_t> outputs({codes.shape(1), n_columns});
  NewArray<double> scores({codes.shape(1), n_columns});
  {
    nb::gil_scoped_release release;
    forest.topk(code_matrix(codes), feature_matrix(features), transform, k, outputs.data,
                scores.data, range, context);
  }
  return nb::make_tuple(outputs.array, scores.array);
}

auto best_outputs(const Forest& forest, const Array2<const uint8_t>& codes,
                  const Array1<const double>& base, const Optional1<const double>& scale,
                  const Optional1<const double>& offset, int32_t first, std::optional<int32_t> last,
                  const Context& context, const AnyFeatures& features) {
  const ScoreTransform transform = score_unit(forest, base, scale, offset);
  const TreeRange range = tree_range(forest, first, last);
  NewArray<int32_t> best({codes.shape(1)});
  {
    nb::gil_scoped_release release;
    forest.best_outputs(code_matrix(codes), feature_matrix(features), transform, best.data, range,
                        context);
  }
  return best.array;
}

nb::tuple sparse_scores(const Forest& forest, const Array2<const uint8_t>& codes, int32_t first,
                        std::optional<int32_t> last, const Context& context,
                        const AnyFeatures& features) {
  const TreeRange range = tree_range(forest, first, last);
  SparseScores rows;
  {
    nb::gil_scoped_release release;
    rows = forest.sparse_scores(code_matrix(codes), feature_matrix(features), range, context);
  }
  return nb::make_tuple(to_numpy(std::move(rows.begin)), to_numpy(std::move(rows.outputs)),
                        to_numpy(std::move(rows.values)));
}

nb::ndarray<nb::numpy, int32_t> apply(const Forest& forest, const Array2<const uint8_t>& codes,
                                      int32_t first, std::optional<int32_t> last,
                                      const Context& context) {
  const TreeRange range = tree_range(forest, first, last);
  NewArray<int32_t> result(
      {codes.shape(1), static_cast<size_t>(range.last > first ? range.last - first : 0)});
  {
    nb::gil_scoped_release release;
    forest.apply(code_matrix(codes), result.data, range, context);
  }
  return result.array;
}

int32_t checked_index(const Forest& forest, int32_t t) {
  if (t < 0 || t >= forest.n_trees())
    throw nb::index_error(
        ("tree " + std::to_string(t) + " of " + std::to_string(forest.n_trees())).c_str());
  return t;
}

void append(Forest& forest, std::shared_ptr<Tree> tree, const AnyLeaves& leaves,
            const AnyOutputs& outputs) {
  forest.append(std::move(tree), leaf_block(leaves), output_list(outputs));
}

void extend(Forest& forest, Array1<const int32_t> feature, Array1<const int32_t> threshold,
            Array1<const bool> missing_left, Array1<const int32_t> left,
            Array1<const int32_t> right, Array1<const int32_t> leaf,
            Array1<const int32_t> category_set, Array1<const double> gain,
            Array1<const int64_t> count, Array1<const double> cover,
            Array1<const int64_t> node_offsets, Array2<const uint64_t> categories,
            Array1<const int64_t> set_offsets, Array1<const int32_t> output,
            Array1<const int32_t> gain_outputs, Array1<const float> output_gain,
            Array1<const float> values, int32_t n_features) {
  NodeArrays nodes{feature, threshold,    missing_left, left,  right,
                   leaf,    category_set, gain,         count, cover};
  StoredArrays stored{node_offsets, categories,  set_offsets, output,
                      gain_outputs, output_gain, values};
  forest.extend(std::make_shared<StoredTrees>(std::move(nodes), std::move(stored),
                                              forest.n_outputs(), n_features));
}

void bind_forest(nb::module_& m) {
  nb::class_<Forest>(m, "Forest", "Trees with their leaf values, for prediction.")
      .def(nb::init<int32_t>(), nb::arg("n_outputs"))
      .def("__len__", &Forest::n_trees)
      .def_prop_ro("n_outputs", &Forest::n_outputs)
      .def("append", &append, nb::arg("tree"), nb::arg("leaves"), nb::arg("outputs") = nb::none(),
           "Add a tree for outputs int32 (m,), ascending, for one output, or for all (None).\n\n"
           "`leaves`: float32 (n_leaves, m); LinearLeaves; or TopkLeaves, which are numbered as\n"
           "all outputs.")
      .def("extend", &extend, nb::kw_only(), nb::arg("feature"), nb::arg("threshold"),
           nb::arg("missing_left"), nb::arg("left"), nb::arg("right"), nb::arg("leaf"),
           nb::arg("category_set"), nb::arg("gain"), nb::arg("count"), nb::arg("cover"),
           nb::arg("node_offsets"), nb::arg("categories"), nb::arg("set_offsets"),
           nb::arg("output"), nb::arg("gain_outputs"), nb::arg("output_gain"), nb::arg("values"),
           nb::arg("n_features"),
           "Add trees with dense leaves from concatenated arrays.\n\n"
           "Tree t has the nodes node_offsets[t] .. node_offsets[t + 1] - 1. The arrays are\n"
           "kept and must not be modified; trees are created on request. Raises ValueError as\n"
           "Tree.from_arrays does.")
      .def("truncate", &Forest::truncate, nb::arg("n_trees"), "Keep the first n_trees trees.")
      .def(
          "tree",
          [](const Forest& forest, int32_t t) {
            return std::const_pointer_cast<Tree>(forest.tree(checked_index(forest, t)));
          },
          nb::arg("t"), "Return tree t; a tree that `extend` added is created anew.")
      .def(
          "values",
          [](const Forest& forest, int32_t t) {
            return as_python(
                std::const_pointer_cast<LeafBlock>(forest.leaves(checked_index(forest, t))));
          },
          nb::arg("t"),
          "Return the leaves of tree t: a read-only view with one row per leaf, TopkLeaves or\n"
          "LinearLeaves.")
      .def(
          "kind",
          [](const Forest& forest, int32_t t) {
            return forest.leaves(checked_index(forest, t))->kind().name;
          },
          nb::arg("t"), "Return the kind of the leaves of tree t: dense, sparse or linear.")
      .def(
          "outputs",
          [](const Forest& forest, int32_t t) {
            const OutputList& outputs = forest.outputs(checked_index(forest, t));
            return outputs.empty() ? std::nullopt : std::optional(to_numpy(OutputList(outputs)));
          },
          nb::arg("t"), "Return the outputs that tree t predicts, int32 ascending; None: all.")
      .def(
          "regressors",
          [](const Forest& forest, int32_t first, std::optional<int32_t> last) {
            return to_numpy(forest.regressors(tree_range(forest, first, last)));
          },
          nb::arg("first") = 0, nb::arg("last") = nb::none(),
          "Return the features that linear leaves of the trees first .. last - 1 read: int32, "
          "ascending.")
      .def(
          "split_features",
          [](const Forest& forest, int32_t first, std::optional<int32_t> last) {
            return to_numpy(forest.split_features(tree_range(forest, first, last)));
          },
          nb::arg("first") = 0, nb::arg("last") = nb::none(),
          "Return the features that the trees first .. last - 1 split on: int32, ascending.")
      .def("predict", &predict, nb::arg("codes"), nb::arg("raw").noconvert(), nb::arg("first") = 0,
           nb::arg("last") = nb::none(), nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "Add the trees first .. last - 1 to raw float32 (n_rows, n_outputs) in place, in "
           "order.\n\n"
           "`codes`: uint8 (n_features, n_rows). `features`: float32 (n_features, n_rows), for\n"
           "linear leaves.")
      .def("scores", &scores, nb::arg("codes"), nb::arg("base"), nb::arg("scale") = nb::none(),
           nb::arg("offset") = nb::none(), nb::arg("first") = 0, nb::arg("last") = nb::none(),
           nb::arg("n_threads") = 1, nb::arg("features").noconvert() = nb::none(),
           nb::arg("coded_features") = nb::none(),
           "Return scores, float64 (n_rows, n_outputs):\n"
           "(base + float32 sum of the trees first .. last - 1) * scale + offset.\n\n"
           "`coded_features`: int32, ascending, the features that `codes` has rows for; None: all "
           "features.")
      .def("topk", &topk, nb::arg("codes"), nb::arg("base").none(), nb::arg("k"),
           nb::arg("scale") = nb::none(), nb::arg("offset") = nb::none(), nb::arg("first") = 0,
           nb::arg("last") = nb::none(), nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "Return the outputs with the highest `scores`, int32 (n_rows, k), and their scores,\n"
           "float64 (n_rows, k).\n\n"
           "Outputs are sorted by score, highest first, with ties in ascending order. If\n"
           "`base` is None, scores are raw sums, and only outputs that a leaf of the row\n"
           "contains are returned. Missing entries are -1 and -inf.")
      .def("best_outputs", &best_outputs, nb::arg("codes"), nb::arg("base"),
           nb::arg("scale") = nb::none(), nb::arg("offset") = nb::none(), nb::arg("first") = 0,
           nb::arg("last") = nb::none(), nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "Return the output of each row with the highest of the `scores`, int32 (n_rows,).\n\n"
           "Ties are in ascending order. Trees that cannot change it are left out.")
      .def("sparse_scores", &sparse_scores, nb::arg("codes"), nb::arg("first") = 0,
           nb::arg("last") = nb::none(), nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "Return sums in CSR format: indptr int64 (n_rows + 1,), outputs int32 (nnz,),\n"
           "values float32 (nnz,).\n\n"
           "A row has the outputs that its leaves contain, in ascending order. Raises\n"
           "ValueError if leaves contain all outputs.")
      .def("apply", &apply, nb::arg("codes"), nb::arg("first") = 0, nb::arg("last") = nb::none(),
           nb::arg("n_threads") = 1, "Return leaf ids, int32 (n_rows, last - first).");
}

}  // namespace

void bind_predict(nb::module_& m) {
  m.attr("MAX_FEATURES") = kMaxFeatures;  // limit of features that trees can split on
  bind_tree(m);
  bind_forest(m);
}

// Bindings of Explainer.

namespace {

using AnyOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

void make(Explainer* self, const Forest& forest, int32_t first, std::optional<int32_t> last,
          const Optional2<const uint8_t>& background, const AnyFeatures& features,
          const Context& context) {
  const TreeRange range{first, last.value_or(forest.n_trees())};
  nb::gil_scoped_release release;
  if (background)
    new (self)
        Explainer(forest, range, code_matrix(*background), feature_matrix(features), context);
  else
    new (self) Explainer(forest, range);
}

ExplainedOutputs checked_outputs(const Explainer& explainer, const Array1<const int32_t>& outputs,
                                 const Optional1<const double>& scale) {
  std::vector<bool> seen(static_cast<size_t>(explainer.n_outputs()), false);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t k = outputs.data()[i];
    require(k >= 0 && k < explainer.n_outputs(),
            "There is no output " + std::to_string(k) + " among the " +
                std::to_string(explainer.n_outputs()) + " outputs.");
    require(!seen[k], "Output " + std::to_string(k) + " is asked for twice.");
    seen[k] = true;
  }
  require(!scale || scale->size() == outputs.size(),
          "`scale` must have one number for each of the outputs.");
  return {outputs.data(), static_cast<int64_t>(outputs.size()), scale ? scale->data() : nullptr};
}

nb::ndarray<nb::numpy, double> expected_values(const Explainer& explainer,
                                               const Array1<const int32_t>& outputs) {
  const ExplainedOutputs chosen = checked_outputs(explainer, outputs, {});
  NewArray<double> result({outputs.size()});
  {
    nb::gil_scoped_release release;
    explainer.expected_values(chosen, result.data);
  }
  return result.array;
}

void explain(const Explainer& explainer, const Array2<const uint8_t>& codes, const AnyOut& out,
             const Array1<const int32_t>& outputs, const Optional1<const double>& scale,
             bool interactions, const Context& context, const AnyFeatures& features) {
  const ExplainedOutputs chosen = checked_outputs(explainer, outputs, scale);
  std::vector<size_t> shape{codes.shape(1)};
  shape.insert(shape.end(), interactions ? 2 : 1, codes.shape(0));
  shape.push_back(outputs.size());
  bool fits = out.ndim() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = out.shape(i) == shape[i];
  require(fits, interactions ? "`out` must have shape (n_rows, n_features, n_features, outputs)."
                             : "`out` must have shape (n_rows, n_features, outputs).");
  nb::gil_scoped_release release;
  explainer.explain(code_matrix(codes), feature_matrix(features), chosen, interactions, out.data(),
                    context);
}

}  // namespace

void bind_explainer(nb::module_& m) {
  nb::class_<Explainer>(
      m, "Explainer",
      "Feature contributions (SHAP values) to the raw sums of the trees first .. last - 1.\n\n"
      "With a background, uint8 codes (n_features, n_rows), and `features` for linear\n"
      "leaves, unknown features have the values of the background rows (interventional\n"
      "TreeSHAP). Otherwise the node counts of the trees are used (path-dependent\n"
      "TreeSHAP).")
      .def("__init__", &make, nb::arg("forest"), nb::arg("first") = 0, nb::arg("last") = nb::none(),
           nb::arg("background") = nb::none(), nb::arg("features").noconvert() = nb::none(),
           nb::arg("n_threads") = 1)
      .def("expected_values", &expected_values, nb::arg("outputs"),
           "Return the expected raw sums of the outputs int32 (n,) if no feature is known, float64 "
           "(n,).")
      .def("explain", &explain, nb::arg("codes"), nb::arg("out").noconvert(), nb::arg("outputs"),
           nb::arg("scale") = nb::none(), nb::arg("interactions") = false, nb::arg("n_threads") = 1,
           nb::arg("features").noconvert() = nb::none(),
           "Add contributions to the distinct outputs int32 (n,), times scale float64 (n,), to "
           "`out`.\n\n"
           "`out`: float32 (n_rows, n_features, n), or (n_rows, n_features, n_features, n)\n"
           "with interactions.");
}

// Bindings of RowPredictor and DevicePredictor.

namespace {

using Known = std::tuple<int32_t, Array1<const double>, Array1<const uint8_t>>;

using Regressors =
    std::optional<std::tuple<Array1<const double>, Array1<const double>, Array1<const double>>>;

template <class T>
std::vector<T> copied(const Array1<const T>& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

RowPredictor* make_row_predictor(std::shared_ptr<Forest> forest, std::shared_ptr<BinTable> bins,
                                 const std::vector<Known>& categories, const Regressors& regressors,
                                 const Array1<const double>& base,
                                 const Optional1<const double>& scale,
                                 const Optional1<const double>& offset) {
  std::vector<CategoryValues> known;
  for (const auto& [feature, values, codes] : categories)
    known.push_back({feature, copied(values), copied(codes)});
  const std::vector<double> nothing;
  RegressorTransform transform;
  if (regressors) {
    const auto& [centre, low, high] = *regressors;
    for (const auto* values : {&centre, &low, &high})
      require(values->size() == static_cast<size_t>(bins->n_features()),
              "`regressors` must have three numbers for each feature.");
    transform = {copied(centre), copied(low), copied(high)};
  }
  return new RowPredictor(std::move(forest), std::move(bins), std::move(known),
                          std::move(transform), copied(base), scale ? copied(*scale) : nothing,
                          offset ? copied(*offset) : nothing);
}

template <class Predictor>
nb::ndarray<nb::numpy, double> scores_of_rows(const Predictor& predictor,
                                              const nb::ndarray<nb::ro, nb::device::cpu>& rows,
                                              const Context& context) {
  const bool narrow = rows.dtype() == nb::dtype<float>();
  require(narrow || rows.dtype() == nb::dtype<double>(), "Rows must be float32 or float64.");
  require(rows.ndim() == 1 || rows.ndim() == 2,
          "Rows must be one row (n_features,) or (n_rows, n_features).");
  const size_t last = rows.ndim() - 1;
  if (rows.shape(last) != static_cast<size_t>(predictor.n_features()))
    throw std::invalid_argument("A row has " + std::to_string(rows.shape(last)) +
                                " features, but the model is expecting " +
                                std::to_string(predictor.n_features()) + ".");
  const ptrdiff_t size = narrow ? sizeof(float) : sizeof(double);
  const NumberRows numbers{static_cast<const char*>(rows.data()),
                           narrow ? ValueType::f32 : ValueType::f64,
                           last == 0 ? 1 : static_cast<int64_t>(rows.shape(0)),
                           predictor.n_features(),
                           last == 0 ? 0 : static_cast<ptrdiff_t>(rows.stride(0)) * size,
                           static_cast<ptrdiff_t>(rows.stride(last)) * size};
  NewArray<double> result(
      {static_cast<size_t>(numbers.n_rows), static_cast<size_t>(predictor.n_outputs())});
  {
    nb::gil_scoped_release release;
    predictor.scores(numbers, result.data, context);
  }
  return result.array;
}

}  // namespace

void bind_row_predictor(nb::module_& m) {
  nb::class_<RowPredictor>(m, "RowPredictor",
                           "Forest and bins for prediction of a few rows at a time.")
      .def(nb::new_(&make_row_predictor), nb::arg("forest"), nb::arg("bins"), nb::arg("categories"),
           nb::arg("regressors").none(), nb::arg("base"), nb::arg("scale").none() = nb::none(),
           nb::arg("offset").none() = nb::none(),
           "Create a predictor. The forest must not be modified afterwards.\n\n"
           "`categories`: for each categorical feature a tuple (feature, values float64, codes\n"
           "uint8), with values in ascending order. `regressors`: centre, low and high of every\n"
           "feature, float64, for linear leaves: values limited to low .. high, less the centre.")
      .def("scores", &scores_of_rows<RowPredictor>, nb::arg("rows").noconvert(),
           nb::arg("n_threads") = 1,
           "Return scores, float64 (n_rows, n_outputs), of float32 or float64 rows (n_rows,\n"
           "n_features) or of one row (n_features,).");
  nb::class_<DevicePredictor>(m, "DevicePredictor",
                              "Predictor like RowPredictor with the trees on a GPU.")
      .def(
          "__init__",
          [](DevicePredictor* self, std::shared_ptr<Device> device,
             std::shared_ptr<RowPredictor> model) {
            nb::gil_scoped_release release;
            new (self) DevicePredictor(std::move(device), std::move(model));
          },
          nb::arg("device"), nb::arg("model"))
      .def("scores", &scores_of_rows<DevicePredictor>, nb::arg("rows").noconvert(),
           nb::arg("n_threads") = 1,
           "Return scores that are bitwise equal to those of RowPredictor.scores.")
      .def(
          "scores_on_device",
          [](const DevicePredictor& self, const DeviceArrayHandle& rows) {
            const auto n_columns = rows.array.view().n_columns;
            require(n_columns == self.n_features(), "Rows must have one column for each feature.");
            require(rows.array.device() == self.device(),
                    "The rows must be on the GPU of the trees.");
            nb::gil_scoped_release release;
            return std::make_unique<DeviceArrayHandle>(
                DeviceArrayHandle{self.scores(rows.array), 2, {}, {}});
          },
          nb::arg("rows"),
          "Return scores of rows on the GPU as a GPU array, float64 (n_rows, n_outputs).");
}

}  // namespace polyleaf
