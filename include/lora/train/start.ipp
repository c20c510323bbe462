#pragma once

#include "lora/core/config.hpp"
#include "lora/train/start.hpp"

namespace lora::train {

LORA_INLINE void write_run_files(const io::Path& output, const settings::Config& resolved, const std::string& device,
                                 const std::string& environment, const std::string& command) {
  io::write_json(output / "run_config.json", settings::to_json(resolved, settings::train_command));
  const std::string machine = run::describe_environment(static_cast<int>(resolved.threads.value_or(1)));
  io::write_file(output / "environment_info.txt", std::string_view(machine + "device: " + device + "\n" + environment));
  if (!command.empty()) io::write_file(output / "train_command.txt", std::string_view(command + "\n"));
}

LORA_INLINE void say_curriculum(const data::Curriculum& curriculum, Index first_step) {
  const std::vector<std::string> labels = curriculum.labels();
  for (const auto& [begin, end, counts] : curriculum.stages()) {
    std::string mix;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (counts[i] > 0) mix += concat(mix.empty() ? "" : ", ", counts[i], " ", settings::in_line(labels[i]));
    if (end > begin) log::info("curriculum: steps ", first_step + begin + 1, " to ", first_step + end, ": ", mix);
  }
  std::string missing;
  for (const std::string& label : curriculum.missing())
    missing += (missing.empty() ? "" : ", ") + settings::in_line(label);
  if (!missing.empty())
    log::warn("no record is labelled ", missing, ": ", curriculum.missing().size() == 1 ? "its share" : "their shares",
              " of the curriculum ", curriculum.missing().size() == 1 ? "goes" : "go", " to the others");
  if (curriculum.left_out() > 0)
    log::warn(curriculum.left_out(), " records have a label of no mix, or none, and are not drawn");
}

LORA_INLINE void say_mixture(const data::Mixture& mixture, std::span<const std::string> names) {
  std::string mix;
  for (std::size_t i = 0; i < mixture.counts.size(); ++i)
    mix += concat(i == 0 ? "" : ", ", mixture.counts[i], " (",
                  fixed(100 * static_cast<double>(mixture.counts[i]) / static_cast<double>(mixture.size()), 1),
                  " %) of ", names[i], "'s ", mixture.files[i].sequences.size());
  if (!mix.empty()) log::info("mix: an epoch has ", mixture.size(), " sequences: ", mix);
}

LORA_INLINE std::string text_of_steps(std::size_t number, const Plan& plan) {
  const Stage& stage = plan.stages()[number];
  const data::StepPlan epoch{plan.sequences(), stage.sequences_per_step};
  return concat(plan.end_of(number) - plan.begin_of(number), " of ", stage.sequences_per_step, " sequences",
                stage.curriculum ? "" : concat(", ", epoch.steps_per_epoch(), " an epoch"));
}

LORA_INLINE void warn_of_warmup(const std::string& begin, const Stage& stage) {
  if (stage.schedule.warmup < stage.schedule.total || stage.schedule.warmup == 0) return;
  log::warn(begin, "the warm-up of ", stage.schedule.warmup, " steps does not end within the ", stage.schedule.total,
            " steps: the learning rate never reaches ", stage.learning_rate);
}

LORA_INLINE void say_unused_rows(const model::Config& shape, const tokenizer::Tokenizer* tokenizer) {
  const Index unused = tokenizer == nullptr ? 0 : shape.vocab_size - tokenizer->vocab_size();
  if (unused <= 0) return;
  const Index numbers = unused * shape.hidden_size * (shape.tie_word_embeddings ? 1 : 2);
  log::info(unused, " of the ", shape.vocab_size, " rows of the vocabulary have no token of the tokenizer: ", numbers,
            " of ", model::parameters_of(shape), " parameters are never used");
}

}  // namespace lora::train
