#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/random.hpp"
#include "lora/data/class_draws.hpp"
#include "lora/data/order.hpp"

namespace lora::data {

/// A part of a curriculum: its samples come from classes of records in the shares of `mix`.
struct CurriculumStage {
  double until = 1;                                      ///< share of all steps at which it ends
  std::vector<std::pair<std::string, double>> mix = {};  ///< label and share; the shares' sum is 1

  bool operator==(const CurriculumStage&) const = default;
};

/// Explanations first, then more reasoning, then topology too.
inline std::vector<CurriculumStage> easy_to_hard() {
  return {{0.3, {{"explain", 0.8}, {"reasoning", 0.2}, {"topology", 0}}},
          {0.7, {{"explain", 0.4}, {"reasoning", 0.4}, {"topology", 0.2}}},
          {1, {{"explain", 0.25}, {"reasoning", 0.35}, {"topology", 0.4}}}};
}

/// The class of each of some sequences, by the label of its record.
struct SequenceClasses {
  std::vector<std::string> labels{};  ///< sorted
  std::vector<std::int32_t> of{};     ///< (sequences) place in labels; −1: the record has no label
};

/// The classes that the mixes of a curriculum draw from, by label, so that their order does not depend on the mixes'.
/// Curricula of the same mixes share them.
struct CurriculumClasses {
  std::vector<SequenceClass> classes{};
  std::vector<std::string> missing{};  ///< labels of the mixes that no record has
  Index left_out = 0;                  ///< sequences that are never drawn, since their label is in no mix

  /// `sequences` are those to train on, `labelled.of` has one entry for each.
  CurriculumClasses(const std::vector<CurriculumStage>& stages, const Sequences& sequences,
                    const SequenceClasses& labelled) {
    std::vector<std::string> wanted;
    for (const CurriculumStage& stage : stages)
      for (const auto& [label, share] : stage.mix)
        if (share > 0) wanted.push_back(label);
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    std::vector<std::vector<std::uint32_t>> found(labelled.labels.size());
    for (Index i = 0; i < sequences.size(); ++i)
      if (const auto own = labelled.of[static_cast<std::size_t>(i)]; own >= 0)
        found[static_cast<std::size_t>(own)].push_back(static_cast<std::uint32_t>(sequences[i]));
    left_out = sequences.size();
    for (const std::string& label : wanted) {
      const auto at = std::lower_bound(labelled.labels.begin(), labelled.labels.end(), label);
      const bool there = at != labelled.labels.end() && *at == label;
      auto own = there ? std::move(found[static_cast<std::size_t>(at - labelled.labels.begin())])
                       : std::vector<std::uint32_t>();
      left_out -= std::ssize(own);
      if (own.empty()) {
        missing.push_back(label);
      } else {
        classes.push_back({label, std::move(own)});
      }
    }
  }
};

/// Which record each sample of a run is, where the mix of classes changes in stages. A function of the seed and the
/// sample's number.
///   step s of T belongs to the first stage with s < until T; a stage of k steps of n samples draws k n, each class's
///   share by largest remainder, in an order drawn by the seed; a class's sequences come in an order drawn by the
///   seed, again in another once all were used, whichever stages they come in
class Curriculum {
 public:
  /// A stage's steps and what it draws.
  struct Stage {
    Index begin;                ///< step
    Index end;                  ///< step, not in it
    std::vector<Index> counts;  ///< of each class
  };

  /// `sequences` are those to train on, `classes.of` has one entry for each. A class that is in a mix and has no
  /// sequence leaves its share to the others.
  /// Throws   ConfigError if a stage is left without any class, or for 2³² samples or more
  Curriculum(const std::vector<CurriculumStage>& stages, const Sequences& sequences, const SequenceClasses& classes,
             std::uint64_t seed, Index steps, Index per_step)
      : Curriculum(stages, std::make_shared<const CurriculumClasses>(stages, sequences, classes), seed, steps,
                   per_step) {}
  /// `classes`: those of these stages.
  Curriculum(const std::vector<CurriculumStage>& stages, std::shared_ptr<const CurriculumClasses> classes,
             std::uint64_t seed, Index steps, Index per_step)
      : seed_(seed), per_step_(per_step), shared_(std::move(classes)) {
    if (steps > 0xFFFFFFFF / per_step)
      fail<ConfigError>("a curriculum of ", steps, " steps of ", per_step, " samples; at most 4294967295 samples are ",
                        "supported");
    for (std::size_t i = 0; i < stages.size(); ++i) {
      std::vector<double> shares(shared_->classes.size(), 0.0);
      for (const auto& [label, share] : stages[i].mix)
        if (const auto at = find(label); at < shared_->classes.size()) shares[at] = share;
      if (!std::any_of(shares.begin(), shares.end(), [](double share) { return share > 0; }))
        fail<ConfigError>("key curriculum_stages: no record has a label of the mix of stage ", i + 1);
      const Index begin = stages_.empty() ? 0 : stages_.back().end;
      const auto end = static_cast<Index>(std::ceil(stages[i].until * static_cast<double>(steps)));
      stages_.push_back({begin, end, {}});
      stages_.back().counts = apportion((end - begin) * per_step, shares);
    }
  }

  const std::vector<Stage>& stages() const { return stages_; }
  Index stage_of(Index step) const {
    std::size_t stage = 0;
    while (stage + 1 < stages_.size() && step >= stages_[stage].end) ++stage;
    return static_cast<Index>(stage);
  }

  /// Labels of the classes that samples are drawn from, sorted.
  std::vector<std::string> labels() const {
    std::vector<std::string> labels;
    for (const SequenceClass& one : shared_->classes) labels.push_back(one.label);
    return labels;
  }
  /// Labels of the mixes that no record has.
  const std::vector<std::string>& missing() const { return shared_->missing; }
  /// Sequences that are never drawn, since their label is in no mix.
  Index left_out() const { return shared_->left_out; }
  /// What it draws from, which others of the same mixes share.
  const CurriculumClasses& classes() const { return *shared_; }

  /// The sequences of the samples [begin, end), which lie in one stage. Keeps the draws of a stage.
  std::vector<Index> between(Index begin, Index end) {
    const Index stage = stage_of(begin / per_step_);
    if (stage != drawn_stage_) draw(stage);
    const Index first = stages_[static_cast<std::size_t>(stage)].begin * per_step_;
    return {drawn_.begin() + (begin - first), drawn_.begin() + (end - first)};
  }

 private:
  std::size_t find(std::string_view label) const {
    const auto at = std::lower_bound(shared_->classes.begin(), shared_->classes.end(), label,
                                     [](const SequenceClass& one, std::string_view text) { return one.label < text; });
    const bool found = at != shared_->classes.end() && at->label == label;
    return static_cast<std::size_t>((found ? at : shared_->classes.end()) - shared_->classes.begin());
  }

  void draw(Index stage) {
    const auto number = static_cast<std::size_t>(stage);
    std::vector<Index> before(shared_->classes.size(), 0);
    for (std::size_t earlier = 0; earlier < number; ++earlier)
      for (std::size_t c = 0; c < before.size(); ++c) before[c] += stages_[earlier].counts[c];
    drawn_ = draw_classes(shared_->classes, stages_[number].counts, before, seed_,
                          mix_key(seed_, detail::curriculum_purpose, static_cast<std::uint64_t>(stage)));
    drawn_stage_ = stage;
  }

  std::uint64_t seed_;
  Index per_step_;
  std::shared_ptr<const CurriculumClasses> shared_;
  std::vector<Stage> stages_;
  Index drawn_stage_ = -1;
  std::vector<std::uint32_t> drawn_;  // the sequences of that stage's samples
};

}  // namespace lora::data
