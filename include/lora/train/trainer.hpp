#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/log.hpp"
#include "lora/inputs/device.hpp"
#include "lora/inputs/sampling.hpp"
#include "lora/io/files/path.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/log_file.hpp"
#include "lora/run/memory_use.hpp"
#include "lora/run/profile.hpp"
#include "lora/run/state.hpp"
#include "lora/settings/deepspeed.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/learner.hpp"
#include "lora/train/loop.hpp"
#include "lora/train/ongoing.hpp"
#include "lora/train/output.hpp"
#include "lora/train/prepared.hpp"
#include "lora/train/resume.hpp"
#include "lora/train/same_on_ranks.hpp"
#include "lora/train/saving.hpp"
#include "lora/train/start.hpp"
#include "lora/train/step_work.hpp"
#include "lora/train/summary.hpp"

namespace lora::train {

/// Settings of a run that are valid, also for this device.
/// Throws   ConfigError
template <AnyDevice D>
settings::Config validated(D& dev, settings::Config config, const model::Config& model, int ranks) {
  settings::apply_deepspeed(config, settings::train_command);
  settings::validate(config, settings::train_command);
  expect_offload_fits<D>(config);
  settle_prefixes(dev, config, model);
  expect_sharing_fits<D>(config, ranks);
  return config;
}

/// The number of threads that last bits depend on; 0 on NPUs.
template <AnyDevice D>
Index threads_that_decide(const D& dev) {
  if constexpr (requires { dev.threads(); })
    return dev.threads();
  else
    return 0;
}

/// A fine-tuning run, from settings to the files in output_dir: what is prepared, what computes, the loop over both,
/// and on the first of its ranks what is written.
template <AnyDevice D, class T>
class TrainingRun {
 public:
  /// Opens model and data and checks everything that can be checked before anything is written. `comm`: the ranks of
  /// which this is one, null for a process of its own; it outlives this, as `dev` does.
  /// Throws   ConfigError, FormatError, IoError
  TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options,
              comm::Communicator<D>* comm = nullptr);
  ~TrainingRun();  // instantiated with the class rather than wherever a run ends
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the end, or until the stop flag is set. Of several ranks, all return once the files are there.
  RunResult run();

 private:
  using Clock = std::chrono::steady_clock;

  // What a run goes on from, and how far.
  struct Beginning {
    std::optional<run::Checkpoint> checkpoint{};
    Index first = 0, end = 0;            // steps done, and to be done in all
    bool evaluates = false;              // before the first of them
    bool has_result = false;             // final_model is in place, for there is nothing to do
    std::string lost{};                  // what is to be said of a best evaluation that counts no more
    std::string threads{};               // and of a number of threads that is another
    std::optional<Output::Kept> kept{};  // of the logs
  };

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool writes() const { return comm_.rank() == 0; }
  void wait_for_all() { (void)agreed(comm_, {}); }

  std::optional<run::Checkpoint> find_checkpoint();
  Beginning begin();
  void restore(const run::Checkpoint& checkpoint);
  void take_folder(Beginning& from);
  void say_beginning(const Beginning& from);
  void expect_learned();
  run::RunMetrics metrics_of(const run::Throughput& speed, Index first, Clock::time_point start) const;
  std::vector<run::RankMetrics> rank_metrics(double peak_memory_gib) const;
  io::Path finish(run::RunMetrics& metrics, bool has_result);

  std::optional<log::Redirect> redirect_;  // while this is constructed
  D& dev_;
  comm::Single<D> alone_;
  comm::Communicator<D>& comm_;
  inputs::HostThreads<D> threads_;
  Prepared prepared_;
  Learner<D, T> learner_;
  Saving<D, T> saving_;
  run::RunState state_;
  std::optional<run::StepMetrics> unlogged_;  // of the step that the run goes on from, which has no line in the log
};

// Outside of the class: inside they would be inline and compiled by every source that calls them.

template <AnyDevice D, class T>
TrainingRun<D, T>::TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options,
                               comm::Communicator<D>* comm)
    : redirect_(redirected(options)),
      dev_(dev),
      comm_(comm != nullptr ? *comm : alone_),
      threads_(dev, config),
      prepared_{*threads_, validated(dev, std::move(config), source.config(), comm_.size()),  // before the source moves
                std::move(source), std::move(options)},
      learner_(dev, comm_, prepared_),
      saving_(dev, comm_, learner_.decoder(), prepared_) {
  redirect_.reset();
}

template <AnyDevice D, class T>
TrainingRun<D, T>::~TrainingRun() = default;

template <AnyDevice D, class T>
RunResult TrainingRun<D, T>::run() {
  const auto start = Clock::now();
  const settings::Config& config = prepared_.config;
  const io::Path& output = prepared_.output;
  const auto redirect = redirected(prepared_.options);
  wait_for_all();  // until all have seen the folder as it is
  if (writes()) io::create_folders(output);
  const auto lock = writes() ? std::optional<io::Lock>(std::in_place, output) : std::nullopt;
  expect_shared(comm_, output);
  Beginning from = begin();
  if (writes()) take_folder(from);
  wait_for_all();  // until the folder is this run's
  std::optional<run::RankLog> own_log;
  if (!writes()) own_log.emplace(output, comm_.rank(), from.checkpoint.has_value());
  std::optional<Output> written;
  if (writes())
    written.emplace(config, output, from.checkpoint.has_value(), prepared_.plan.total(), from.first,
                    draws_bar(prepared_.options));
  say_beginning(from);
  if (written) written->begin(from.kept);
  const run::ProfiledRun<D> profiled(dev_, config.profile, from.end - from.first);
  const double before = from.kept ? from.kept->lines.elapsed : 0;
  Ongoing<D, T> ongoing{dev_, comm_, prepared_, learner_, saving_, state_, [&](const run::Event& event) {
                          if (written) written->take(event);
                        }};
  Loop<D, T> loop(ongoing);
  if (unlogged_) loop.has_unlogged(std::move(*unlogged_));
  RunResult result{.rank = comm_.rank(), .size = comm_.size()};
  result.stopped_by = loop.run(before + seconds_since(start), from.evaluates, from.checkpoint.has_value());
  if (profiled.on() && writes()) profiled.report(output, to_text(run::memory_use(dev_, learner_.decoder())));
  result.metrics = metrics_of(loop.speed(), from.first, start);
  result.metrics.finished = result.stopped_by == 0;
  if (result.stopped_by != 0) {
    lora::log::info("stopped after step ", state_.step, " of ", prepared_.plan.total(), "; checkpoint ",
                    saving_.checkpoints().folder_of(state_.step).native());
  } else {
    expect_learned();
    result.final_model = finish(result.metrics, from.has_result);
    if (!from.has_result) say_end(config, result.metrics, before + seconds_since(start));
  }
  if (writes() && !io::is_there(output / run::metrics_file)) run::write_training_metrics(output, result.metrics);
  if (result.metrics.finished) ongoing.tell(run::FinishedEvent{});
  wait_for_all();
  return result;
}

/// What an interrupted run has left is removed by the first rank, before the others look.
template <AnyDevice D, class T>
std::optional<run::Checkpoint> TrainingRun<D, T>::find_checkpoint() {
  std::optional<run::Checkpoint> found;
  if (writes()) found = prepared_.earlier.find_checkpoint();
  wait_for_all();
  if (!writes()) found = prepared_.earlier.find_checkpoint();
  return found;
}

/// Changes no file but for what an interrupted run has left.
template <AnyDevice D, class T>
typename TrainingRun<D, T>::Beginning TrainingRun<D, T>::begin() {
  Beginning from;
  from.checkpoint = find_checkpoint();
  if constexpr (std::same_as<T, f16>) state_.loss_scale.emplace();
  state_.settings = noted_settings(prepared_, learner_.decoder());
  const auto step = from.checkpoint ? std::optional(from.checkpoint->state.step) : std::nullopt;
  if (comm_.size() > 1) comm::expect_same(comm_, facts_of(prepared_, state_.settings, step));
  if (from.checkpoint)
    expect_fits(*from.checkpoint, state_.settings, prepared_.config, prepared_.source, prepared_.plan);
  from.first = from.checkpoint ? from.checkpoint->state.step : 0;
  const bool stays = from.checkpoint && stays_ended(from.checkpoint->state, prepared_.config);
  from.end = stays ? from.first : prepared_.plan.total();
  if (writes()) Output::expect_writable(prepared_.config);
  if (writes() && from.first < from.end) io::expect_room(prepared_.output, saving_.checkpoint_bytes(), "a checkpoint");
  if (from.checkpoint) restore(*from.checkpoint);
  if (prepared_.data.evaluates() && (from.first < from.end || state_.evaluation_due))
    from.lost = run::note_evaluated_records(state_, evaluated_records(prepared_.data));
  if (from.first < from.end) from.threads = run::note_threads(state_, threads_that_decide(dev_));
  if (from.lost.empty()) from.lost = saving_.forget_lost_best(state_, prepared_.earlier.goes_on_here());
  if (writes() && from.checkpoint && prepared_.earlier.goes_on_here())
    from.kept = Output::kept_through(prepared_.output, from.first);
  // The run was stopped during it, or has not begun.
  from.evaluates = prepared_.data.evaluates() &&
                   (state_.evaluation_due || (!from.checkpoint && prepared_.config.eval_on_start && from.end > 0));
  wait_for_all();  // until all have read what the first is about to change
  return from;
}

/// Changes no file.
template <AnyDevice D, class T>
void TrainingRun<D, T>::restore(const run::Checkpoint& checkpoint) {
  io::Json settings = std::move(state_.settings);
  state_ = checkpoint.state;
  state_.settings = std::move(settings);
  if (state_.ended_early && !stays_ended(state_, prepared_.config)) state_.ended_early = state_.out_of_patience = false;
  if (!state_.unlogged.is_null())
    unlogged_ = run::step_metrics_from(io::JsonView(state_.unlogged, checkpoint.folder.native(), "unlogged"));
  state_.unlogged = io::Json();  // clang 14 leaks the old value with `= {}`
  if (state_.stage > 0) learner_.enter(state_.stage);
  saving_.load(checkpoint);
  learner_.stepper().with_optimizer(dev_, [&](auto& dev, auto& optimizer) {
    run::load_optimizer(dev, optimizer, state_.updates, checkpoint.folder);
  });
}

/// Makes the folder this run's. All that may fail comes before, for this is the first to change anything.
template <AnyDevice D, class T>
void TrainingRun<D, T>::take_folder(Beginning& from) {
  prepared_.earlier.take(from.checkpoint, from.end, from.evaluates);
  // The run may have been killed just before. What was its best stays until there is a newer checkpoint.
  if (from.checkpoint) saving_.rotate(from.checkpoint->state);
  from.has_result = prepared_.earlier.folder().has_result();
  // First of all, since they identify the folder as a run's. Those of a finished run say how its results came about.
  if (!from.has_result)
    write_run_files(prepared_.output,
                    resolved_settings(prepared_.config, dev_, learner_.decoder(), prepared_.data.text(),
                                      prepared_.plan.stages().front().limit),
                    dev_.describe(), prepared_.options.environment, prepared_.options.command);
}

template <AnyDevice D, class T>
void TrainingRun<D, T>::say_beginning(const Beginning& from) {
  const MemoryPlan& memory = largest(learner_.memory());
  const StepWork step = step_work<D, T>(first_batches(prepared_.plan, memory.stage, prepared_.data.train(),
                                                      prepared_.config, prepared_.blueprint.config.windows),
                                        nn::machine_of(dev_), prepared_.blueprint,
                                        prepared_.plan.stages()[memory.stage].trains, memory.recomputed);
  say_start(prepared_.config, prepared_.blueprint, prepared_.survey.train, prepared_.plan, step, memory, dev_.memory(),
            prepared_.source.is_initial(), prepared_.data.text().tokenizer.get());
  if (prepared_.config.eval_predict) inputs::warn_of_ends(prepared_.source);
  say_offload(learner_.decoder().streaming(), prepared_.config, learner_.decoder().params().value_bytes(),
              learner_.decoder().params().host_bytes());
  say_mixture(prepared_.data.mixture(), prepared_.file_names);
  if (from.checkpoint) lora::log::info("resuming from ", from.checkpoint->folder.native(), ", step ", from.first);
  if (!from.lost.empty() && !from.has_result) lora::log::warn(from.lost);
  if (!from.threads.empty() && writes()) lora::log::info(from.threads);  // the state has the first rank's
}

/// Throws   Error where no step has changed anything
template <AnyDevice D, class T>
void TrainingRun<D, T>::expect_learned() {
  if (state_.updates > 0) return;
  constexpr std::string_view nothing = ": nothing was learned, and no final_model is written";
  if (state_.overflows > 0)
    fail<Error>("no step had a finite gradient at a loss scale from ", optim::LossScale().value, " down to ",
                state_.loss_scale->value, nothing);
  if (state_.skipped == 0 && state_.step > 0) fail<Error>("no step had a labeled token", nothing);
  if (state_.skipped > 0)
    fail<Error>("no step had a finite loss and gradient", nothing,
                spoiled_weight(dev_, prepared_.config, prepared_.source, state_.updates));
}

template <AnyDevice D, class T>
run::RunMetrics TrainingRun<D, T>::metrics_of(const run::Throughput& speed, Index first,
                                              Clock::time_point start) const {
  run::RunMetrics metrics = lasting_metrics(state_, prepared_.plan, prepared_.data.absent_class_field());
  metrics.tokens_per_second = speed.tokens_per_second();
  metrics.peak_memory_gib = run::peak_memory_gib();
  metrics.seconds = seconds_since(start);
  metrics.resumed_from_step = first;
  metrics.ranks = rank_metrics(metrics.peak_memory_gib);
  return metrics;
}

/// Of all ranks, where there are several. Every rank calls this.
template <AnyDevice D, class T>
std::vector<run::RankMetrics> TrainingRun<D, T>::rank_metrics(double peak_memory_gib) const {
  std::vector<run::RankMetrics> all;
  if (comm_.size() == 1) return all;
  const comm::Traffic traffic = comm_.traffic();
  const run::RankMetrics own{.rank = comm_.rank(),
                             .host = comm_.host(),
                             .device = dev_.describe(),
                             .threads = prepared_.config.threads.value_or(1),
                             .peak_memory_gib = peak_memory_gib,
                             .communication_seconds = traffic.seconds,
                             .sent_bytes = traffic.sent_bytes,
                             .received_bytes = traffic.received_bytes};
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const std::string text = comm::text_of(comm_, rank, io::to_text(to_json(own), -1));
    const std::string where = concat("metrics of rank ", rank);
    const io::Json json = io::parse_json(text, where);
    all.push_back(run::rank_metrics_from(io::JsonView(json, where)));
  }
  return all;
}

/// Writes the final model, unless it is there. Every rank calls this. Returns   its folder
template <AnyDevice D, class T>
io::Path TrainingRun<D, T>::finish(run::RunMetrics& metrics, bool has_result) {
  const io::Path folder = prepared_.earlier.folder().final_model();
  const settings::Config& config = prepared_.config;
  const bool together = learner_.decoder().gathers_values();
  if (together) has_result = comm_.agree(has_result ? 1u : 0u) != 0;  // only the first rank knows
  if (!writes() && (has_result || !together)) return folder;
  if (has_result) {
    lora::log::info(
        "nothing to do: the run is finished, step ", state_.step, " of ", prepared_.plan.total(),
        state_.out_of_patience ? ", where early_stopping_patience ended it (a larger one lets it go on)" : "", "; the ",
        config.result_name(), " is in ", folder.native());
    return folder;
  }
  const bool takes_best = config.load_best_model_at_end && state_.best_eval_loss && state_.best_step != state_.step;
  const auto best = takes_best ? saving_.take_best(state_) : std::nullopt;
  const std::string& absent = prepared_.data.absent_class_field();
  const run::RunMetrics weights = best ? lasting_metrics(*best, prepared_.plan, absent) : metrics;
  saving_.final_model(metrics, weights, folder);
  metrics.weights_step = weights.steps;
  return folder;
}

}  // namespace lora::train
