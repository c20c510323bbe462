#pragma once

#include "lora/core/config.hpp"
#include "lora/train/plan.hpp"

namespace lora::train {

LORA_INLINE Plan::Plan(data::Order order, Index units, std::vector<Stage> stages)
    : order_(std::move(order)), units_(units), stages_(std::move(stages)) {
  lay_out({});
}

LORA_INLINE void Plan::fit_to(const inputs::Records& records) {
  constexpr Index most_steps = 8, enough_sequences = 256;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    if (!stage.limit.shares) continue;
    std::vector<std::vector<Index>> units;
    for (Index begin = begin_of(i), end = begin; begin < end_of(i); begin = end) {
      const auto part = curriculum_part(begin);
      end = part ? std::min(part->end, end_of(i)) : end_of(i);
      Index sequences = 0;
      for (Index step = begin; step < std::min(end, begin + most_steps) && sequences < enough_sequences; ++step)
        for (std::vector<Index>& unit : at(step).units) {
          sequences += std::ssize(unit);
          units.push_back(std::move(unit));
        }
    }
    if (stage.limit.usual) {
      std::vector<Index> common;
      for (const auto& unit : units)
        for (const Index tokens : records.common_beginnings(unit, stage.limit.cutoff_len)) common.push_back(tokens);
      const auto middle = common.begin() + std::ssize(common) / 2;
      std::nth_element(common.begin(), middle, common.end());
      stage.limit = inputs::with_room_for(stage.limit, common.empty() ? 0 : *middle);
    }
    const auto ratio = [](Index part, Index whole) { return static_cast<double>(part) / static_cast<double>(whole); };
    double rows = 0;
    for (const auto& unit : units)
      for (const data::Batch& batch : records.micro_batches(unit, stage.limit)) {
        rows = std::max(rows, ratio(batch.rows(), batch.sequence_tokens));
        if (batch.rows() < batch.sequence_tokens)
          stage.shared.labeled = std::max(stage.shared.labeled, ratio(batch.labeled, batch.rows()));
      }
    if (rows > 0) stage.shared.rows = rows;
  }
}

LORA_INLINE Index Plan::epochs_begun(Index total, const data::StepPlan& epoch) {
  return std::max<Index>(total - 1, 0) / epoch.steps_per_epoch() + 1;
}

LORA_INLINE Index Plan::stage_of(Index step) const {
  const auto after = std::upper_bound(parts_.begin() + 1, parts_.end(), step,
                                      [](Index value, const Part& part) { return value < part.begin; });
  return after - parts_.begin() - 1;
}

LORA_INLINE std::optional<Plan::CurriculumPart> Plan::curriculum_part(Index step) const {
  const auto& curriculum = stages_[static_cast<std::size_t>(stage_of(step))].curriculum;
  if (!curriculum) return std::nullopt;
  const Index begin = part_of(step).begin;
  const auto& part = curriculum->stages()[static_cast<std::size_t>(curriculum->stage_of(step - begin))];
  return CurriculumPart{begin + part.begin, begin + part.end, curriculum->labels()};
}

LORA_INLINE PlannedStep Plan::at(Index step) {
  const Index number = stage_of(step);
  Stage& stage = stages_[static_cast<std::size_t>(number)];
  PlannedStep planned{step, number, {}, stage.limit, 0};
  planned.learning_rate = stage.learning_rate * stage.schedule.factor(step - part_of(step).begin);
  const auto samples = samples_of(step);
  for (Index unit = 0; unit < units_; ++unit) {
    const auto range = data::StepPlan::unit_of(samples, unit, units_);
    const Index before = samples_before_stage(number);
    planned.units.push_back(stage.curriculum ? stage.curriculum->between(range.begin - before, range.end - before)
                                             : order_.between(range.begin, range.end));
  }
  return planned;
}

LORA_INLINE double Plan::epoch_after(Index done) const {
  const Part& part = part_of(std::max<Index>(done - 1, 0));
  const Index steps = done - part.begin;
  const Stage& stage = stages_[static_cast<std::size_t>(stage_of(std::max<Index>(done - 1, 0)))];
  const data::StepPlan epoch{order_.size(), stage.sequences_per_step};
  const double epochs = stage.curriculum ? static_cast<double>(steps) / static_cast<double>(epoch.steps_per_epoch())
                                         : part.steps.epoch_after(steps);
  return static_cast<double>(part.first_epoch) + epochs;
}

LORA_INLINE void Plan::lay_out(const std::vector<Index>& ended) {
  parts_.clear();
  Index step = 0, epoch = 0;
  auto early = ended.begin();
  for (const Stage& stage : stages_) {
    const Index planned = stage.schedule.total;
    // A curriculum has no epochs: its steps are full.
    const data::StepPlan steps{
        stage.curriculum ? std::max<Index>(planned, 1) * stage.sequences_per_step : order_.size(),
        stage.sequences_per_step};
    parts_.push_back({step, epoch, steps});
    const bool is_last = parts_.size() == stages_.size();
    const bool ends_early = !is_last && early != ended.end() && *early > step && *early < step + planned;
    const Index total = ends_early ? *early++ - step : planned;
    step += total;
    epoch += epochs_begun(total, {order_.size(), stage.sequences_per_step});
  }
  if (early != ended.end()) fail<FormatError>("no stage of this run can have ended early after step ", *early);
  total_ = step;
}

LORA_INLINE Index Plan::samples_before_stage(Index stage) const {
  return parts_[static_cast<std::size_t>(stage)].first_epoch * order_.size();
}

LORA_INLINE data::StepPlan::Range Plan::samples_of(Index step) const {
  const Part& part = part_of(step);
  const auto samples = part.steps.samples(step - part.begin);
  const Index before = samples_before_stage(stage_of(step));
  return {before + samples.begin, before + samples.end};
}

LORA_INLINE std::vector<std::vector<data::Batch>> batches_of(const inputs::Records& records, const PlannedStep& step,
                                                             const comm::OwnUnits& own) {
  std::vector<std::vector<data::Batch>> batches;
  Index place = 0;
  for (std::size_t unit = 0; unit < step.units.size(); ++unit) {
    if (own.has(static_cast<Index>(unit)))
      batches.push_back(records.micro_batches(step.units[unit], step.limit, place));
    place += std::ssize(step.units[unit]);
  }
  return batches;
}

LORA_INLINE void expect_whole_blocks(const settings::Config& config, const Plan& plan, const inputs::Records& records) {
  const Index block = records.encoder().options().cutoff_len;
  const auto kinds = records.dataset().kinds();
  const bool texts = std::find(kinds.begin(), kinds.end(), data::Sample::Kind::text) != kinds.end();
  for (std::size_t i = 0; texts && i < plan.stages().size(); ++i)
    if (const Index cutoff = plan.stages()[i].limit.cutoff_len; cutoff < block)
      fail<ConfigError>(settings::stage_name(config, i), ": key cutoff_len: given ", cutoff,
                        ", but texts are cut into ", "blocks of ", block,
                        " tokens, whose ends it would cut off; allowed: the same in all stages");
}

LORA_INLINE Stage stage_of(const settings::Config& config, Index steps) {
  Stage stage;
  stage.sequences_per_step = config.sequences_per_step();
  stage.limit = inputs::micro_batch_limit(config);
  stage.learning_rate = config.learning_rate;
  stage.schedule = {optim::decay_of(config.lr_scheduler_type), 0, steps};
  stage.schedule.warmup = optim::warmup_of(config.warmup_steps, config.warmup_ratio, steps);
  return stage;
}

LORA_INLINE Plan plan_of(const settings::Config& config, const data::Sequences& sequences,
                         const std::vector<std::function<bool(std::string_view)>>& trains,
                         const data::SequenceClasses* classes, const data::Mixture& mixture) {
  const auto order_seed = static_cast<std::uint64_t>(config.seed);
  data::Order order =
      mixture.files.empty() ? data::Order(sequences, order_seed, config.shuffle) : data::Order(mixture, order_seed);
  const settings::StageConfigs configs(config);
  std::vector<Stage> stages;
  std::map<std::string, std::shared_ptr<const data::CurriculumClasses>> drawn_by;  // by the text of their mixes
  Index begin = 0, epoch = 0;                                                      // of the next stage
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const settings::Config own = configs[i];
    const data::StepPlan steps{order.size(), own.sequences_per_step()};
    const settings::StageSettings* const said = config.stages.empty() ? nullptr : &config.stages[i];
    const double epochs = said != nullptr && said->until_epoch ? *said->until_epoch : config.num_train_epochs;
    Index end = config.max_steps;
    if (said != nullptr && said->until_step) end = *said->until_step;
    const bool by_epochs = end < 0 || (said != nullptr && said->until_epoch);
    if (by_epochs) end = begin + steps.steps(epochs, -1, epoch);
    if (said != nullptr && end <= begin)
      fail<ConfigError>("key stages: ", settings::stage_name(config, i), " would end with ",
                        by_epochs ? concat("epoch ", epochs) : concat("step ", end), ", but it begins after ",
                        by_epochs ? concat("epoch ", epoch) : concat("step ", begin),
                        "; allowed: a later end; hint: a stage begins with an epoch of its own");
    Stage& stage = stages.emplace_back(stage_of(own, end - begin));
    if (i < trains.size()) stage.trains = trains[i];
    if (own.use_curriculum && classes != nullptr) try {
        // Another order in each stage.
        const auto seed = static_cast<std::uint64_t>(own.curriculum_seed);
        auto& drawn = drawn_by[io::to_text(settings::as_json(own.curriculum_stages), -1)];
        if (!drawn) drawn = std::make_shared<const data::CurriculumClasses>(own.curriculum_stages, sequences, *classes);
        stage.curriculum.emplace(own.curriculum_stages, drawn, i == 0 ? seed : mix_key(seed, i), end - begin,
                                 stage.sequences_per_step);
      } catch (const ConfigError& error) {
        if (said == nullptr) throw;
        fail<ConfigError>(settings::stage_name(config, i), ": ", std::string_view(error.what()));
      }
    epoch += Plan::epochs_begun(end - begin, steps);
    begin = end;
  }
  return Plan(std::move(order), config.step_units, std::move(stages));
}

}  // namespace lora::train
