#pragma once

#include <unistd.h>

#include <any>
#include <atomic>
#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lora/comm/on_host.hpp"
#include "lora/core/log.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/files/path.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/run_state.hpp"

namespace lora::train {

/// The model that a run trains, and the device that it is on.
template <AnyDevice D, class T>
struct RunModel {
  D& dev;
  model::Decoder<D, T>& decoder;
};

/// A run between two steps, as its callbacks see it.
class Running {
 public:
  template <AnyDevice D, class T>
  Running(RunModel<D, T> model, const inputs::TextFiles& text, const run::RunState& state, Index total_steps,
          const comm::Ranks& ranks)
      : model_(model),
        text_(text),
        state_(state),
        total_steps_(total_steps),
        rank_(ranks.rank()),
        size_(ranks.size()) {}

  const run::RunState& state() const { return state_; }
  Index total_steps() const { return total_steps_; }
  /// Of the ranks that train together, this one, of [0, size).
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_distributed() const { return size_ > 1; }
  /// The tokenizer, null where the model has none, and the chat template, if the data or the settings name one.
  const inputs::TextFiles& text() const { return text_; }

  /// Null where the run has another device or type. Using it changes no bit of the run, unless its weights are changed.
  /// With zero_stage 3 on NPUs, or of a model that trains in full, ranks make its passes together: every rank calls the
  /// same. Values that train are then gathered by ParamStore::whole.
  template <AnyDevice D, class T>
  const RunModel<D, T>* model() const {
    return std::any_cast<RunModel<D, T>>(&model_);
  }

  /// Ends the run here, with an evaluation, a checkpoint and final_model as after its last step. Resumed, it stays
  /// ended.
  void finish() { finishes_ = true; }
  bool finishes() const { return finishes_; }

 private:
  std::any model_;
  const inputs::TextFiles& text_;
  const run::RunState& state_;
  Index total_steps_;
  int rank_, size_;
  bool finishes_ = false;
};

/// A function of some metrics, or of these and a Running&.
template <class Metrics>
class Callback {
 public:
  Callback() = default;
  template <class F>
  Callback(F f)
    requires(!std::same_as<F, Callback>)
  {
    if constexpr (std::invocable<F&, const Metrics&, Running&>) {
      f_ = std::move(f);
    } else {
      f_ = [f = std::move(f)](const Metrics& metrics, Running&) mutable { f(metrics); };
    }
  }

  explicit operator bool() const { return static_cast<bool>(f_); }
  void operator()(const Metrics& metrics, Running& running) const { f_(metrics, running); }

 private:
  std::function<void(const Metrics&, Running&)> f_;
};

/// Options of a run that are not settings.
struct RunOptions {
  std::string command{};      ///< written to train_command.txt
  std::string environment{};  ///< more lines for environment_info.txt
  /// Those that train together, of which this process is one; they outlive the run. Every one has the same settings.
  comm::HostRanks* ranks = nullptr;
  const std::atomic<int>* stop = nullptr;  ///< once not 0, the run ends after the step, with a checkpoint
  int stop_flag() const { return stop != nullptr ? stop->load() : 0; }
  data::RecordLists records{};  ///< those that dataset and eval_dataset name instead of files
  log::Sink log{};              ///< gets what is logged, and progress; else the process's sink, and a bar
  Callback<run::StepMetrics> on_step{};
  std::function<bool(Running&)> evaluates{};  ///< before an evaluation that is due: false leaves it out
  Callback<model::Evaluation> on_evaluation{};
  std::function<bool(std::string_view)> trains{};  ///< which of the adapter's tensors, by name; empty: all
};

/// While it lives, what this thread logs goes where the options say.
inline std::optional<log::Redirect> redirected(const RunOptions& options) {
  if (!options.log) return std::nullopt;
  return std::optional<log::Redirect>(std::in_place, options.log);
}

/// Whether a run draws its progress on the terminal.
inline bool draws_bar(const RunOptions& options) { return !options.log && ::isatty(STDERR_FILENO) == 1; }

/// The result of a run.
struct RunResult {
  run::RunMetrics metrics{};
  int stopped_by = 0;      ///< value of the stop flag; 0 if the run reached its end
  io::Path final_model{};  ///< empty if it was stopped
  int rank = 0, size = 1;  ///< of those that trained together; what each did is in metrics.ranks

  bool is_distributed() const { return size > 1; }
};

}  // namespace lora::train
