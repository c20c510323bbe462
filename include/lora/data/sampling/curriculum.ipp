#pragma once

#include "lora/core/config.hpp"
#include "lora/data/sampling/curriculum.hpp"

namespace lora::data {

LORA_INLINE std::vector<CurriculumStage> easy_to_hard() {
  return {{0.3, {{"explain", 0.8}, {"reasoning", 0.2}, {"topology", 0}}},
          {0.7, {{"explain", 0.4}, {"reasoning", 0.4}, {"topology", 0.2}}},
          {1, {{"explain", 0.25}, {"reasoning", 0.35}, {"topology", 0.4}}}};
}

LORA_INLINE CurriculumClasses::CurriculumClasses(const std::vector<CurriculumStage>& stages, const Sequences& sequences,
                                                 const SequenceClasses& labeled) {
  std::vector<std::string> wanted;
  for (const CurriculumStage& stage : stages)
    for (const auto& [label, share] : stage.mix)
      if (share > 0) wanted.push_back(label);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<std::vector<std::uint32_t>> found(labeled.labels.size());
  for (Index i = 0; i < sequences.size(); ++i)
    if (const auto own = labeled.of[static_cast<std::size_t>(i)]; own >= 0)
      found[static_cast<std::size_t>(own)].push_back(static_cast<std::uint32_t>(sequences[i]));
  of_records = labeled.labels;
  left_out = sequences.size();
  for (const std::string& label : wanted) {
    const auto at = std::lower_bound(labeled.labels.begin(), labeled.labels.end(), label);
    const bool there = at != labeled.labels.end() && *at == label;
    auto own =
        there ? std::move(found[static_cast<std::size_t>(at - labeled.labels.begin())]) : std::vector<std::uint32_t>();
    left_out -= std::ssize(own);
    if (own.empty()) {
      missing.push_back(label);
    } else {
      classes.push_back({label, std::move(own)});
    }
  }
}

LORA_INLINE Curriculum::Curriculum(const std::vector<CurriculumStage>& stages, const Sequences& sequences,
                                   const SequenceClasses& classes, std::uint64_t seed, Index steps, Index per_step)
    : Curriculum(stages, std::make_shared<const CurriculumClasses>(stages, sequences, classes), seed, steps, per_step) {
}

LORA_INLINE Curriculum::Curriculum(const std::vector<CurriculumStage>& stages,
                                   std::shared_ptr<const CurriculumClasses> classes, std::uint64_t seed, Index steps,
                                   Index per_step)
    : seed_(seed), per_step_(per_step), shared_(std::move(classes)) {
  if (steps > 0xFFFFFFFF / per_step)
    fail<ConfigError>("a curriculum of ", steps, " steps of ", per_step, " samples; at most 4294967295 samples are ",
                      "supported");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    std::vector<double> shares(shared_->classes.size(), 0.0);
    for (const auto& [label, share] : stages[i].mix)
      if (const auto at = find(label); at < shared_->classes.size()) shares[at] = share;
    if (!std::any_of(shares.begin(), shares.end(), [](double share) { return share > 0; })) {
      std::vector<std::string> wanted, found;
      for (const auto& [label, share] : stages[i].mix)
        if (share > 0) wanted.push_back(io::shown(label));
      for (const std::string& label : shared_->of_records) found.push_back(io::shown(label));
      fail<ConfigError>("key curriculum_stages: no record has a label of the mix of stage ", i + 1, ": ",
                        listed(wanted),
                        "; the labels of the records, in the field that curriculum_field names: ", listed(found));
    }
    const Index begin = stages_.empty() ? 0 : stages_.back().end;
    const auto end = static_cast<Index>(std::ceil(stages[i].until * static_cast<double>(steps)));
    stages_.push_back({begin, end, {}});
    stages_.back().counts = apportion((end - begin) * per_step, shares);
  }
}

LORA_INLINE Index Curriculum::stage_of(Index step) const {
  std::size_t stage = 0;
  while (stage + 1 < stages_.size() && step >= stages_[stage].end) ++stage;
  return static_cast<Index>(stage);
}

LORA_INLINE std::vector<std::string> Curriculum::labels() const {
  std::vector<std::string> labels;
  for (const SequenceClass& one : shared_->classes) labels.push_back(one.label);
  return labels;
}

LORA_INLINE std::vector<Index> Curriculum::between(Index begin, Index end) {
  const Index stage = stage_of(begin / per_step_);
  if (stage != drawn_stage_) draw(stage);
  const Index first = stages_[static_cast<std::size_t>(stage)].begin * per_step_;
  return {drawn_.begin() + (begin - first), drawn_.begin() + (end - first)};
}

LORA_INLINE std::size_t Curriculum::find(std::string_view label) const {
  const auto at = std::lower_bound(shared_->classes.begin(), shared_->classes.end(), label,
                                   [](const SequenceClass& one, std::string_view text) { return one.label < text; });
  const bool found = at != shared_->classes.end() && at->label == label;
  return static_cast<std::size_t>((found ? at : shared_->classes.end()) - shared_->classes.begin());
}

LORA_INLINE void Curriculum::draw(Index stage) {
  const auto number = static_cast<std::size_t>(stage);
  std::vector<Index> before(shared_->classes.size(), 0);
  for (std::size_t earlier = 0; earlier < number; ++earlier)
    for (std::size_t c = 0; c < before.size(); ++c) before[c] += stages_[earlier].counts[c];
  drawn_ = draw_classes(shared_->classes, stages_[number].counts, before, seed_,
                        mix_key(seed_, detail::curriculum_purpose, static_cast<std::uint64_t>(stage)));
  drawn_stage_ = stage;
}

}  // namespace lora::data
