#pragma once

#include "lora/core/config.hpp"
#include "lora/train/summary.hpp"

namespace lora::train {

LORA_INLINE void say_end(const settings::Config& config, const run::RunMetrics& metrics, double seconds) {
  std::string best;
  if (metrics.best_step)
    best = concat("; the best evaluation was step ", *metrics.best_step, "'s, with loss ",
                  fixed(metrics.best_eval_loss.value(), 4),
                  metrics.weights_step == metrics.best_step ? ", whose weights final_model has" : "");
  log::info("done: ", metrics.steps, metrics.steps == 1 ? " step" : " steps", " and ", metrics.total_tokens, " tokens",
            metrics.computed_tokens ? concat(", ",
                                             fixed(100 * static_cast<double>(*metrics.computed_tokens) /
                                                       static_cast<double>(metrics.total_tokens),
                                                   1),
                                             " % of them computed,")
                                    : "",
            " in ", run::duration_text(seconds), ", ", fixed(metrics.tokens_per_second, 0), " tokens/s; mean loss ",
            fixed(metrics.mean_train_loss, 4), ", of the last step ", fixed(metrics.train_loss, 4), best);
  const io::Path output = config.output_dir;
  log::info("the numbers are in ", (output / "training_metrics.json").native(), " and ",
            (output / "trainer_log.jsonl").native(), ", checkpoints in ", (output / "checkpoints").native());
}

}  // namespace lora::train
