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
#include "lora/data/sampling/class_draws.hpp"
#include "lora/data/sampling/order.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data {

/// A part of a curriculum: its samples come from classes of records in the shares of `mix`.
struct CurriculumStage {
  double until = 1;                                      ///< share of all steps at which it ends
  std::vector<std::pair<std::string, double>> mix = {};  ///< label and share; the shares' sum is 1

  bool operator==(const CurriculumStage&) const = default;
};

/// Explanations first, then more reasoning, then topology too.
std::vector<CurriculumStage> easy_to_hard();

/// The class of each of some sequences, by the label of its record.
struct SequenceClasses {
  std::vector<std::string> labels{};  ///< sorted
  std::vector<std::int32_t> of{};     ///< (sequences) place in labels; −1: the record has no label
};

/// The classes that the mixes of a curriculum draw from, by label, so that their order does not depend on the mixes'.
/// Curricula of the same mixes share them.
struct CurriculumClasses {
  std::vector<SequenceClass> classes{};
  std::vector<std::string> missing{};     ///< labels of the mixes that no record has
  std::vector<std::string> of_records{};  ///< labels that records have, sorted
  Index left_out = 0;                     ///< sequences that are never drawn, since their label is in no mix

  /// `sequences` are those to train on, `labeled.of` has one entry for each.
  CurriculumClasses(const std::vector<CurriculumStage>& stages, const Sequences& sequences,
                    const SequenceClasses& labeled);
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
             std::uint64_t seed, Index steps, Index per_step);
  /// `classes`: those of these stages.
  Curriculum(const std::vector<CurriculumStage>& stages, std::shared_ptr<const CurriculumClasses> classes,
             std::uint64_t seed, Index steps, Index per_step);

  const std::vector<Stage>& stages() const { return stages_; }
  Index stage_of(Index step) const;

  /// Labels of the classes that samples are drawn from, sorted.
  std::vector<std::string> labels() const;
  /// Labels of the mixes that no record has.
  const std::vector<std::string>& missing() const { return shared_->missing; }
  /// Sequences that are never drawn, since their label is in no mix.
  Index left_out() const { return shared_->left_out; }
  /// What it draws from, which others of the same mixes share.
  const CurriculumClasses& classes() const { return *shared_; }

  /// The sequences of the samples [begin, end), which lie in one stage. Keeps the draws of a stage.
  std::vector<Index> between(Index begin, Index end);

 private:
  std::size_t find(std::string_view label) const;

  void draw(Index stage);

  std::uint64_t seed_;
  Index per_step_;
  std::shared_ptr<const CurriculumClasses> shared_;
  std::vector<Stage> stages_;
  Index drawn_stage_ = -1;
  std::vector<std::uint32_t> drawn_;  // the sequences of that stage's samples
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/sampling/curriculum.ipp"
#endif
