// Feature contributions to the raw scores of a row: SHAP (Shapley) values.
//
// The trees of a forest are split into groups of leaves whose tables fit the cache; a group
// processes all rows tile by tile and sums its leaves in order. Groups do not depend on rows,
// outputs or threads, so results are bitwise reproducible.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "explain/shap_coefficients.h"
#include "explain/shap_leaf_values.h"
#include "forest/forest.h"

namespace polyleaf {

// Distinct outputs; scale: contributions to output i are multiplied by scale[i]; null: 1.
struct ExplainedOutputs {
  const int32_t* outputs;
  int64_t n;
  const double* scale;
};

class Explainer {
 public:
  // Explain with the node counts of the trees as the distribution of unknown features
  // (path-dependent TreeSHAP).
  Explainer(const Forest& forest, TreeRange range);
  // Explain with a non-empty background data set as the distribution of unknown features
  // (interventional TreeSHAP); `features` for linear leaves. Only what the trees read is copied.
  Explainer(const Forest& forest, TreeRange range, const CodeMatrix& background,
            const FeatureMatrix& features, const Context& context);
  ~Explainer();

  int32_t n_outputs() const { return n_outputs_; }

  // Compute the expected raw sums when no feature is known, not scaled.
  void expected_values(const ExplainedOutputs& outputs, double* expected) const;

  // out (n_rows, F, n), or with interactions (n_rows, F, F, n), F being codes.n_features, +=
  // contributions in float32.
  void explain(const CodeMatrix& codes, const FeatureMatrix& features,
               const ExplainedOutputs& outputs, bool interactions, float* out,
               const Context& context) const;

 private:
  struct Part;
  struct Unit;
  struct Group;
  struct Request;
  struct Worker;

  void read(const Forest& forest, TreeRange range);
  void prepare();
  void check(const CodeMatrix& codes, const FeatureMatrix& features) const;
  CodeTiles make_tiles(const CodeMatrix& codes) const;
  void copy_codes(const CodeMatrix& codes, int64_t row, int n, uint8_t* to) const;
  void copy_features(const FeatureMatrix& features, int64_t row, int n, float* to) const;
  void find_background_leaves(const Forest& forest, TreeRange range, const CodeMatrix& background,
                              const FeatureMatrix& features, const Context& context);
  std::vector<int64_t> number_regressors() const;
  void add_background_means(const Part& part, const OutputChunk& chunk, double* expected) const;
  std::vector<double> compute_expected(const Part& part, const OutputChunk& chunk) const;
  LinearBackground make_linear_background(const Part& part, const LeafPaths& paths) const;
  std::vector<Group> groups(bool pairs) const;
  void assign_slots(Group& group, bool pairs) const;
  void explain_group(Group& group, const Request& request) const;
  void explain_chunk(const Group& group, const std::vector<ShapLeafValues>& leaf_values,
                     const Request& request, int64_t first, int32_t n, int tile_rows) const;
  void explain_tile(const Group& group, const std::vector<ShapLeafValues>& leaf_values,
                    const Request& request, int64_t row, int n_rows, Worker& worker,
                    const ShapTile& tile) const;
  void write_tile(const Group& group, const Request& request, int64_t row, int n_rows,
                  int64_t first, const ShapTile& tile) const;

  int32_t n_outputs_;
  int32_t n_features_ = 0;               // 1 + the largest feature that is read
  std::vector<int32_t> features_;        // features that are read, ascending: one per column
  std::vector<int32_t> feature_column_;  // column of each feature; -1: not read
  std::vector<int32_t> regressors_;      // columns that linear leaves read
  std::vector<Part> parts_;
  bool has_background_ = false;
  ShapConfig config_;
  CodeTiles background_;
  std::vector<float> background_features_;  // [column of regressors_][row]
};

}  // namespace polyleaf
