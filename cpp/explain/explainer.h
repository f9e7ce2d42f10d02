// Contributions: what each feature adds to the raw scores of a row, as Shapley's values
// (docs/explaining.md).
//
// The trees of a forest are cut into groups of leaves whose tables fit the cache; a group goes over
// all rows, tile by tile, and adds up its leaves in order. Groups do not depend on rows, outputs or
// threads, so neither do the bits of the result.
//
// Owns: groups, tiles and their order. Must not know: how coefficients are found (leaf_games.h),
// what leaves pay out (leaf_payloads.h), base scores.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "explain/shap_coefficients.h"
#include "explain/shap_leaf_values.h"
#include "forest/forest.h"

namespace polyleaf {

// Different outputs; scale: contributions to output i are multiplied by scale[i]. Null: 1.
struct ExplainedOutputs {
  const int32_t* outputs;
  int64_t n;
  const double* scale;
};

class Explainer {
 public:
  // What is unknown of a row is known by the counts of the trees' nodes.
  Explainer(const Forest& forest, TreeRange range);
  // What is unknown of a row is as in the rows of a background, of which there is at least one;
  // `features` where leaves are linear. Nothing of it is kept but what trees read.
  Explainer(const Forest& forest, TreeRange range, const CodeMatrix& background,
            const FeatureMatrix& features, const Workers& workers);
  ~Explainer();

  int32_t n_outputs() const { return n_outputs_; }

  // The expected sum of payloads of a row of which nothing is known, not scaled.
  void expected_values(const ExplainedOutputs& outputs, double* expected) const;

  // out (n_rows, F, n), or with interactions (n_rows, F, F, n), F being codes.n_features, +=
  // contributions, in float32.
  void explain(const CodeMatrix& codes, const FeatureMatrix& features,
               const ExplainedOutputs& outputs, bool interactions, float* out,
               const Workers& workers) const;

 private:
  struct Part;
  struct Unit;
  struct Group;
  struct Work;
  struct Worker;

  void read(const Forest& forest, TreeRange range);
  void prepare();
  void check(const CodeMatrix& codes, const FeatureMatrix& features) const;
  CodeTiles tiles_of(const CodeMatrix& codes) const;
  void copy_codes(const CodeMatrix& codes, int64_t row, int n, uint8_t* to) const;
  void copy_features(const FeatureMatrix& features, int64_t row, int n, float* to) const;
  void find_leaves_of_background(const Forest& forest, TreeRange range,
                                 const CodeMatrix& background, const FeatureMatrix& features,
                                 const Workers& workers);
  void expect_hybrids(const Part& part, const OutputChunk& chunk, double* expected) const;
  std::vector<double> expected_of(const Part& part, const OutputChunk& chunk) const;
  HybridBackground hybrid_background(const Part& part, const LeafPaths& paths) const;
  std::vector<Group> groups(bool pairs) const;
  void assign_slots(Group& group, bool pairs) const;
  void explain_group(Group& group, const Work& work) const;
  void explain_chunk(const Group& group, const std::vector<LeafPayloads>& payloads,
                     const Work& work, int64_t first, int32_t n, int rows_together) const;
  void explain_tile(const Group& group, const std::vector<LeafPayloads>& payloads, const Work& work,
                    int64_t row, int n_rows, Worker& worker, const ContributionTile& tile) const;
  void write_tile(const Group& group, const Work& work, int64_t row, int n_rows, int64_t first,
                  const ContributionTile& tile) const;

  int32_t n_outputs_;
  int32_t n_features_ = 0;           // that are read: 1 + the largest
  std::vector<int32_t> features_;    // that are read, ascending: those of the columns
  std::vector<int32_t> column_of_;   // of each feature; -1: not read
  std::vector<int32_t> regressors_;  // columns that linear leaves read
  std::vector<Part> parts_;
  bool has_background_ = false;
  ShapConfig rules_;
  CodeTiles background_;
  std::vector<float> background_features_;  // [column of regressors_][row]
};

}  // namespace polyleaf
