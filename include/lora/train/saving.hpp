#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/final_model.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/state.hpp"
#include "lora/run/talk.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/value_text.hpp"
#include "lora/train/account.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/step.hpp"

namespace lora::train {

/// Writes the checkpoints and the final model of a run, which the first of several ranks does, and reads its best
/// checkpoint back.
template <AnyDevice D, class T>
class Saving {
 public:
  /// All of these outlive it.
  Saving(D& dev, comm::Communicator<D>& comm, model::Decoder<D, T>& decoder, const Prepared& run)
      : dev_(dev),
        comm_(comm),
        decoder_(decoder),
        config_(run.config),
        source_(run.source),
        talk_(talk_of(run)),
        plan_(run.plan),
        absent_class_field_(run.data.absent_class_field()),
        output_(run.output),
        checkpoints_(output_) {}

  const run::Checkpoints& checkpoints() const { return checkpoints_; }
  /// About what a checkpoint takes on disk.
  std::uint64_t checkpoint_bytes() const { return run::checkpoint_bytes(decoder_, talk_.tokenizer); }

  /// Every rank calls this.
  void checkpoint(const run::RunState& state, Stepper<D, T>& stepper) {
    if (comm_.rank() != 0) {
      if (decoder_.gathers_values()) model::save_trained(dev_, decoder_, std::nullopt);
      return save_optimizer(stepper, {});
    }
    checkpoints_.save(state, [&](const io::Path& folder) {
      const run::RunMetrics now = lasting_metrics(state, plan_, absent_class_field_);
      const std::string card = card_of(now, now);
      if (config_.trains_model()) {
        run::write_trained_folder(dev_, decoder_, source_, talk_, card, folder);
      } else {
        run::write_adapter_folder(dev_, decoder_, source_, talk_, card, folder);
      }
      save_optimizer(stepper, folder);
    });
    rotate(state);
  }

  /// Removes checkpoints beyond save_total_limit.
  void rotate(const run::RunState& state) {
    if (!config_.save_total_limit) return;
    const bool keeps_best = config_.load_best_model_at_end && state.best_eval_loss;
    checkpoints_.rotate(*config_.save_total_limit, keeps_best ? std::optional(state.best_step) : std::nullopt,
                        state.step);
  }

  /// Gives the model what was trained until a checkpoint.
  void load(const run::Checkpoint& checkpoint) {
    if (config_.trains_model()) return run::read_trained_folder(dev_, decoder_, source_, checkpoint.folder);
    model::load_adapter(dev_, decoder_, model::open_adapter(checkpoint.folder));
  }

  /// The best checkpoint; where it is gone or damaged, or is another run's, nothing and `why`.
  /// Throws   Error if it can't be read or has another version
  std::optional<run::Checkpoint> open_best(const run::RunState& state, std::string& why) const {
    auto best = checkpoints_.find(state.best_step, why);
    if (!best || best->state.last_eval_loss == state.best_eval_loss) return best;
    why = concat(best->folder.native(), " is not of this run");
    return std::nullopt;
  }

  /// Forgets of the best checkpoint that load_best_model_at_end can load it where it can't: as in open_best, or where
  /// the run goes on in another folder than it is in. Ranks that share out what trains call this together, and forget
  /// it if one of them can't. Returns  what is to be said of that, or nothing Throws   as open_best
  std::string forget_lost_best(run::RunState& state, bool goes_on_here) const {
    if (!config_.load_best_model_at_end || !state.best_eval_loss) return {};
    std::string why = "it is not in output_dir";
    if (all_can(goes_on_here && open_best(state, why), why)) return {};
    std::string said = concat("load_best_model_at_end can't load the best checkpoint, step ", state.best_step,
                              "'s: ", why, "; it takes the best of the evaluations from now on");
    if (!state.to_beat) state.to_beat.emplace(*state.best_metric, state.best_step);
    state.best_eval_loss.reset();
    state.best_metric.reset();
    state.best_step = 0;
    return said;
  }

  /// Loads the best checkpoint and returns its state. If it is missing or damaged by now, the model of the last step is
  /// kept, by all of the ranks that share out what trains, which call this together.
  /// Throws   Error where some of these could read it, and others then couldn't
  std::optional<run::RunState> take_best(const run::RunState& state) {
    std::string why;
    std::optional<run::Checkpoint> best;
    bool taken = false;
    const auto attempt = [&why](const auto& read) {
      try {
        read();
      } catch (const FormatError& error) {  // of loading too: then nothing has been taken yet
        why = error.what();
      } catch (const IoError& error) {
        why = error.what();
      }
    };
    attempt([&] { best = open_best(state, why); });
    if (all_can(best.has_value(), why)) {
      attempt([&] {
        load(*best);
        taken = true;
      });
      if (all_can(taken, why)) {
        lora::log::info("the best evaluation, with loss ", fixed(*state.best_eval_loss, 4), ", was step ",
                        state.best_step, "'s: taking ", best->folder.native());
        return best->state;
      }
      if (taken)
        fail<Error>("the best checkpoint, step ", state.best_step, "'s, was read by some ranks, by others not");
    }
    lora::log::warn("cannot take the best, step ", state.best_step, "'s: ", why, "; final_model is the last step's");
    return std::nullopt;
  }

  /// `weights`: of the step whose weights the model has now. The first rank writes; ranks that share out what trains
  /// call this together.
  void final_model(const run::RunMetrics& run, const run::RunMetrics& weights, const io::Path& folder) {
    if (comm_.rank() != 0) {
      if (decoder_.gathers_values()) model::gather_merged(dev_, decoder_);
      return;
    }
    const std::string card = card_of(run, weights);
    io::write_whole_folder(folder, run::stranger_in_result, [&](const io::Path& partial) {
      if (!config_.trains_model()) return run::write_adapter_folder(dev_, decoder_, source_, talk_, card, partial);
      const Index shard = *settings::parse_size(config_.max_shard_size);
      run::write_model_folder(dev_, decoder_, source_, talk_, card, shard, partial);
    });
    lora::log::info("the ", config_.result_name(), " is in ", folder.native());
  }

 private:
  // Whether all of the ranks that share out what trains can, or this one, where nobody does.
  bool all_can(bool can, std::string& why) const {
    if (!decoder_.gathers_values() || comm_.agree(can ? 1u : 2u) == 1) return can;
    if (can) why = "not all ranks can read it";
    return false;
  }

  void save_optimizer(Stepper<D, T>& stepper, const io::Path& folder) {
    stepper.with_optimizer(dev_,
                           [&](auto& dev, auto& optimizer) { run::save_optimizer(dev, optimizer, comm_, folder); });
  }

  std::string card_of(const run::RunMetrics& run, const run::RunMetrics& weights) const {
    return run::model_card(config_, source_, config_.trains_model() ? nullptr : &decoder_.adapter(), run, weights,
                           talk_);
  }

  D& dev_;
  comm::Communicator<D>& comm_;
  model::Decoder<D, T>& decoder_;
  const settings::Config& config_;
  const model::Source& source_;
  run::Talk talk_;
  const Plan& plan_;
  const std::string& absent_class_field_;
  io::Path output_;
  run::Checkpoints checkpoints_;
};

}  // namespace lora::train
