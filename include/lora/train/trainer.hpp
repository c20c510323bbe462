#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/model/finite.hpp"
#include "lora/optim/schedule.hpp"
#include "lora/run/earlier_run.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/final_model.hpp"
#include "lora/run/fixed_settings.hpp"
#include "lora/run/memory_use.hpp"
#include "lora/run/profile.hpp"
#include "lora/run/progress.hpp"
#include "lora/run/state.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/memory.hpp"
#include "lora/train/start.hpp"
#include "lora/train/step.hpp"

namespace lora::train {

/// Options of a run that are not settings.
struct RunOptions {
  std::string command{};                   ///< written to train_command.txt
  std::string environment{};               ///< more lines for environment_info.txt
  const std::atomic<int>* stop = nullptr;  ///< once not 0, the run ends after the step, with a checkpoint
  std::function<void(const run::StepMetrics&)> on_step{};
  std::function<void(const run::EvalMetrics&)> on_evaluation{};
};

/// The result of a run.
struct RunResult {
  run::RunMetrics metrics{};
  int stopped_by = 0;      ///< value of the stop flag; 0 if the run reached its end
  io::Path final_model{};  ///< empty if it was stopped
};

/// A fine-tuning run, from settings to the files in output_dir.
template <AnyDevice D, class T>
class TrainingRun {
 public:
  /// Opens model and data and checks everything that can be checked before anything is written.
  /// Throws   ConfigError, FormatError, IoError
  TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options);

  /// Trains to the end, or until the stop flag is set.
  RunResult run();

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void attach() {
    std::optional<model::AdapterFiles> start;
    if (!config_.adapter_name_or_path.empty()) {
      start.emplace(model::open_adapter(inputs::find_adapter(config_.adapter_name_or_path)));
      model::check_adapter(*start, decoder_->config());
    }
    decoder_->attach(dev_, inputs::adapter_of(config_, start ? &*start : nullptr));
    if (start) {
      model::load_adapter(dev_, *decoder_, *start);
    } else {
      model::init_adapter(dev_, *decoder_, static_cast<std::uint64_t>(config_.seed));
    }
    stepper_.emplace(
        dev_, *decoder_,
        optim::AdamWSettings{config_.adam_beta1, config_.adam_beta2, config_.adam_epsilon, config_.weight_decay},
        config_.max_grad_norm, static_cast<std::uint64_t>(config_.seed), alone_,
        StepSharing{.units = config_.step_units});
  }

  io::Json settings() const {
    const auto& dataset = data_->train().dataset();
    run::DataFacts facts{dataset.fingerprint(), dataset.size(), {}, data_->date(), data_->enable_thinking()};
    const auto kinds = dataset.kinds();
    if (std::find(kinds.begin(), kinds.end(), data::Sample::Kind::text) != kinds.end())
      facts.text_blocks = data_->train().size();
    if (data_->text().chat_template) facts.template_name = data_->text().chat_template->name();
    return run::fixed_settings(config_, source_, decoder_->adapter(), facts, !std::same_as<T, float>);
  }

  /// Throws   Error if this run can't resume from the checkpoint
  void expect_fits(const run::Checkpoint& checkpoint) const {
    run::expect_same_settings(run::settings_as(state_.settings, checkpoint, config_, source_), checkpoint);
    if (checkpoint.state.step > schedule_.total)
      fail<ConfigError>("key ", config_.max_steps > 0 ? "max_steps" : "num_train_epochs", ": given ",
                        config_.max_steps > 0 ? static_cast<double>(config_.max_steps) : config_.num_train_epochs,
                        ", which ends with step ", schedule_.total, ", but ", checkpoint.folder.native(), " is step ",
                        checkpoint.state.step, "; allowed: that step or a later one");
    run::expect_same_place(checkpoint, plan_->samples(checkpoint.state.step).begin);
  }

  void restore(const run::Checkpoint& checkpoint) {
    io::Json settings = std::move(state_.settings);
    state_ = checkpoint.state;
    state_.settings = std::move(settings);
    model::load_adapter(dev_, *decoder_, model::open_adapter(checkpoint.folder));
    run::load_optimizer(dev_, stepper_->optimizer(), state_.updates, checkpoint.folder);
    // The best checkpoint may be missing or in another folder: then it can't be loaded at the end.
    if (!config_.load_best_model_at_end || !state_.best_eval_loss) return;
    try {
      open_best();
    } catch (const Error&) {
      state_.best_eval_loss.reset();
      state_.best_step = 0;
    }
  }

  /// Throws   Error if the best checkpoint is gone or damaged, or is another run's
  run::Checkpoint open_best() const {
    run::Checkpoint best = run::Checkpoints::open(checkpoints_->folder_of(state_.best_step));
    if (best.state.last_eval_loss != state_.best_eval_loss)
      fail<FormatError>(best.folder.native(), " is not of this run");
    return best;
  }

  /// Micro-batches of each unit of a step.
  using UnitBatches = std::vector<std::vector<data::Batch>>;

  UnitBatches batches_of(Index step) {
    const auto samples = plan_->samples(step);
    UnitBatches units;
    for (Index unit = 0; unit < config_.step_units; ++unit)
      units.push_back(data_->train().micro_batches(*order_, data::StepPlan::unit_of(samples, unit, config_.step_units),
                                                   inputs::micro_batch_limit(config_), samples.begin));
    return units;
  }

  UnitBatches upcoming_batches() {
    const Span waiting(dev_, Profile::Kind::phase, "data");
    return upcoming_.valid() ? upcoming_.get() : batches_of(state_.step);
  }

  void step(run::MetricsLog& log, run::Progress& progress, run::Throughput& speed, Clock::time_point start) {
    const auto begin = Clock::now();
    const Span whole(dev_, Profile::Kind::step, "step");
    const auto samples = plan_->samples(state_.step);
    const auto batches = upcoming_batches();
    // Encoded while this step computes. Only this task uses the order and the records meanwhile.
    if (state_.step + 1 < schedule_.total)
      upcoming_ = std::async(std::launch::async, [this, next = state_.step + 1] { return batches_of(next); });
    const StepResult result =
        stepper_->accumulate(dev_, state_.step, std::span<const std::vector<data::Batch>>(batches));
    const double rate = config_.learning_rate * schedule_.factor(state_.step);
    const bool applies = is_usable(result, batches, log);
    if (applies) stepper_->update(dev_, result, rate);

    ++state_.step;
    state_.evaluation_due = false;
    state_.updates = stepper_->optimizer().updates();
    state_.next_sample = samples.end;
    state_.total_tokens += result.tokens;
    if (applies) {
      state_.last_loss = result.loss;
      state_.losses.add(result.loss);
      state_.losses_since_line.add(result.loss);
    }
    const double seconds = seconds_since(begin);
    speed.add(result.tokens, seconds);
    run::StepMetrics metrics;
    metrics.skipped = !applies;
    metrics.step = state_.step;
    metrics.epoch = plan_->epoch_after(state_.step);
    metrics.loss = result.has_labels() ? result.loss : std::numeric_limits<double>::quiet_NaN();
    metrics.mean_loss = state_.losses_since_line.mean();
    metrics.learning_rate = rate;
    metrics.grad_norm = result.grad_norm;
    metrics.tokens = result.tokens;
    metrics.labelled_tokens = result.labelled;
    metrics.tokens_per_second = seconds > 0 ? static_cast<double>(result.tokens) / seconds : 0;
    metrics.elapsed_seconds = log.elapsed_seconds() + seconds_since(start);
    metrics.peak_memory_gib = run::peak_memory_gib();
    const bool logged = state_.step % config_.logging_steps == 0 || state_.step == schedule_.total;
    if (logged) {
      log.write(metrics);
      state_.losses_since_line = {};
    }
    progress.step(metrics, logged && applies);  // a skipped step has a warning instead
    if (options_.on_step) options_.on_step(metrics);
  }

  /// Whether the step's gradient may be applied. If it is not finite, the run stops or the step is skipped, as
  /// on_non_finite says.
  bool is_usable(const StepResult& result, const UnitBatches& units, run::MetricsLog& log) {
    if (!result.has_labels()) {
      lora::log::warn("step ", state_.step + 1, " has no labelled token and is skipped");
      return false;
    }
    if (result.finite()) return true;
    std::string places;
    for (const auto& unit : units)
      for (const auto& batch : unit)
        for (const Index record : batch.records) places += (places.empty() ? "" : ", ") + data_->train().where(record);
    const std::string what = concat("step ", state_.step + 1, ": loss ", result.loss, ", gradient norm ",
                                    result.grad_norm, "; its records: ", places);
    if (config_.on_non_finite == "skip") {
      lora::log::warn(what, skipped_ == 0 ? spoilt_weight() : "", "; the step is skipped");
      ++skipped_;
      return false;
    }
    save_checkpoint(log);
    fail<Error>(what, spoilt_weight(), "; the state before it is ", checkpoints_->folder_of(state_.step).native());
  }

  /// The weight that may be the cause, as the end of a sentence: one that is not finite or, before the first update,
  /// the largest. Reads all weights.
  std::string spoilt_weight() {
    std::optional<model::AdapterFiles> start;
    if (!config_.adapter_name_or_path.empty())
      start.emplace(model::open_adapter(inputs::find_adapter(config_.adapter_name_or_path)));
    const auto extreme = model::extreme_number(dev_, source_, start ? &*start : nullptr);
    return !extreme.finite() || state_.updates == 0 ? "; " + model::describe(extreme) : "";
  }

  bool evaluation_due(bool last) const {
    if (!data_->evaluates()) return false;
    const Index every = config_.eval_steps.value_or(config_.load_best_model_at_end ? config_.save_steps : 0);
    return last || (every > 0 && state_.step % every == 0);
  }

  /// True if the model is the best so far and load_best_model_at_end is set. If it is stopped, the resumed run
  /// evaluates again.
  bool evaluate_now(run::MetricsLog& log) {
    const auto& order = data_->eval_order();
    const auto example_of = [&](Index i) { return data_->eval()[order[static_cast<std::size_t>(i)]]; };
    const auto count = static_cast<Index>(order.size());
    run::CountProgress progress("evaluating", "records", count);
    const auto totals = evaluate(
        dev_, *decoder_, count, example_of, config_.per_device_eval_batch_size, config_.cutoff_len,
        [&](const EvaluationTotals& sums) { progress.reached(sums.records, sums.tokens); }, options_.stop);
    progress.clear();
    state_.evaluation_due = totals.stopped;
    if (totals.stopped) return false;
    run::EvalMetrics metrics;
    metrics.step = state_.step;
    metrics.loss = totals.loss();
    log.write(metrics);
    lora::log::info("step ", state_.step, ": evaluation loss ", fixed(metrics.loss, 4), ", perplexity ",
                    significant(metrics.perplexity(), 4));
    if (options_.on_evaluation) options_.on_evaluation(metrics);
    state_.last_eval_loss = metrics.loss;
    const bool better =
        std::isfinite(metrics.loss) && (!state_.best_eval_loss || metrics.loss < *state_.best_eval_loss);
    if (better) {
      state_.best_eval_loss = metrics.loss;
      state_.best_step = state_.step;
    }
    return better && config_.load_best_model_at_end;
  }

  void save_checkpoint(run::MetricsLog& log) {
    log.sync();  // the log must be durable before the checkpoint
    for (const auto& folder : {output_, output_ / "tensorboard"}) io::sync_folder(folder);
    checkpoints_->save(state_, [&](const io::Path& folder) {
      run::write_adapter_folder(dev_, *decoder_, source_, data_->text().tokenizer.get(), card(current_metrics()),
                                folder);
      run::save_optimizer(dev_, stepper_->optimizer(), folder);
    });
    if (config_.save_total_limit) {
      const bool keeps_best = config_.load_best_model_at_end && state_.best_eval_loss;
      checkpoints_->rotate(*config_.save_total_limit, keeps_best ? std::optional(state_.best_step) : std::nullopt);
    }
  }

  /// Only values that are the same in two runs with the same bits.
  run::RunMetrics current_metrics() const {
    run::RunMetrics metrics;
    metrics.train_loss = state_.last_loss;
    metrics.mean_train_loss = state_.losses.mean();
    metrics.steps = state_.step;
    metrics.total_tokens = state_.total_tokens;
    metrics.eval_loss = state_.last_eval_loss;
    metrics.best_eval_loss = state_.best_eval_loss;
    return metrics;
  }
  run::RunMetrics metrics_of(const run::Throughput& speed, Index first, Clock::time_point start) const {
    run::RunMetrics metrics = current_metrics();
    metrics.tokens_per_second = speed.tokens_per_second();
    metrics.peak_memory_gib = run::peak_memory_gib();
    metrics.seconds = seconds_since(start);
    metrics.resumed_from_step = first;
    return metrics;
  }
  std::string card(const run::RunMetrics& metrics) const {
    return run::model_card(config_, source_, decoder_->adapter(), metrics);
  }

  /// Loads the best checkpoint. If it is missing or damaged by now, the model of the last step is kept.
  void take_best() {
    try {
      const run::Checkpoint best = open_best();
      model::load_adapter(dev_, *decoder_, model::open_adapter(best.folder));
      lora::log::info("the best evaluation loss, ", *state_.best_eval_loss, ", was step ", state_.best_step,
                      "'s: taking ", best.folder.native());
    } catch (const Error& error) {
      lora::log::warn("cannot take the best, step ", state_.best_step, "'s: ", std::string_view(error.what()),
                      "; final_model is the last step's");
    }
  }

  /// `again`: the checkpoint of a run that was already finished. Its final_model exists unless it was interrupted just
  /// then; an existing one may also be left over from a run that this one overwrote.
  io::Path finish(const run::RunMetrics& metrics, const run::Checkpoint* again) {
    const io::Path folder = output_ / "final_model";
    if (again != nullptr && io::is_there(folder) &&
        (run::steps_of_metrics(output_) == state_.step || earlier_->folder().has_adapter_of(again->folder))) {
      lora::log::info("nothing to do: the run is finished, step ", state_.step, " of ", schedule_.total,
                      "; the adapter is in ", folder.native());
      return folder;
    }
    const bool takes_best = config_.load_best_model_at_end && state_.best_eval_loss && state_.best_step != state_.step;
    if (takes_best) take_best();
    io::write_whole_folder(folder, run::stranger_in_adapter, [&](const io::Path& partial) {
      run::write_adapter_folder(dev_, *decoder_, source_, data_->text().tokenizer.get(), card(metrics), partial);
    });
    lora::log::info("the adapter is in ", folder.native());
    return folder;
  }

  D& dev_;
  settings::Config config_;
  RunOptions options_;
  model::Source source_;
  io::Path output_;
  std::optional<run::EarlierRun> earlier_;
  std::optional<inputs::RunData> data_;
  std::optional<data::Order> order_;
  std::optional<data::StepPlan> plan_;
  std::optional<data::EncodeSummary> summary_;
  std::unique_ptr<model::Decoder<D, T>> decoder_;
  comm::Single alone_;
  std::optional<Stepper<D, T>> stepper_;
  optim::Schedule schedule_;
  std::optional<run::Checkpoints> checkpoints_;
  run::RunState state_;
  MemoryPlan memory_;
  Index skipped_ = 0;                  // steps of this process whose loss or gradient was not finite
  std::future<UnitBatches> upcoming_;  // for the next step; destroyed before what it reads
};

// Outside of the class: inside they would be inline and compiled by every source that calls them.

template <AnyDevice D, class T>
TrainingRun<D, T>::TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options)
    : dev_(dev), config_(std::move(config)), options_(std::move(options)), source_(std::move(source)) {
  settings::validate(config_, settings::train_command);
  output_ = config_.output_dir;
  earlier_.emplace(config_, inputs::paths_of(config_, source_.path()));
  data_.emplace(dev_, config_, source_.path(), source_.config().vocab_size,
                [this](std::string_view name) { return earlier_->setting(name); });
  if (!data_->date().empty()) config_.date = data_->date();
  if (data_->enable_thinking()) config_.enable_thinking = data_->enable_thinking();
  order_.emplace(data_->order(), static_cast<std::uint64_t>(config_.seed), config_.shuffle);
  plan_.emplace(data::StepPlan{order_->size(), config_.sequences_per_step()});
  decoder_ = std::make_unique<model::Decoder<D, T>>(dev_, source_);
  attach();
  schedule_ = {optim::decay_of(config_.lr_scheduler_type), 0,
               plan_->steps(config_.num_train_epochs, config_.max_steps)};
  schedule_.warmup = optim::warmup_of(config_.warmup_steps, config_.warmup_ratio, schedule_.total);
  const auto found = data_->survey(dev_, config_);
  summary_ = found.train;
  if (schedule_.total < 1)
    fail<ConfigError>("key num_train_epochs: given ", config_.num_train_epochs, ", which is not even one step");
  if (run::brings_config(source_)) (void)model::config_json_of(source_);  // final_model will need it
  memory_ = plan_memory(
      *decoder_, weight_bytes(source_), largest_batch(*summary_, inputs::micro_batch_limit(config_), plan_->per_step),
      largest_evaluation(found.eval, config_.per_device_eval_batch_size, config_.cutoff_len), config_);
  decoder_->recompute(memory_.recomputed);
}

template <AnyDevice D, class T>
RunResult TrainingRun<D, T>::run() {
  const auto start = Clock::now();
  io::create_folders(output_);
  const io::Lock lock(output_);
  checkpoints_.emplace(output_);
  const auto resumed = earlier_->find_checkpoint();
  state_.settings = settings();
  if (resumed) expect_fits(*resumed);
  const Index first = resumed ? resumed->state.step : 0;
  if (first < schedule_.total)
    io::expect_room(output_, run::checkpoint_bytes(*decoder_, data_->text().tokenizer.get()), "a checkpoint");
  earlier_->take(resumed, schedule_.total);
  if (resumed) restore(*resumed);
  // First of all, since they identify the folder as a run's.
  write_run_files(output_, resolved_settings(config_, dev_, *decoder_, data_->text()), dev_.describe(),
                  options_.environment, options_.command);
  run::Progress progress(output_ / "training.log", resumed.has_value(), schedule_.total, first);
  say_start(config_, *decoder_, *summary_, *plan_, schedule_.total, memory_);
  if (resumed) lora::log::info("resuming from ", resumed->folder.native(), ", step ", first);
  progress.begin();
  run::MetricsLog log(output_, resumed ? std::optional<Index>(first) : std::nullopt);
  RunResult result;
  run::Throughput speed;
  const run::ProfiledRun<D> profiled(dev_, config_.profile, schedule_.total - first);
  const auto asked_to_stop = [&] { return options_.stop != nullptr ? options_.stop->load() : 0; };
  const bool evaluates_first = state_.evaluation_due && data_->evaluates();  // the run was stopped during it
  if (evaluates_first) {
    evaluate_now(log);
    if (state_.evaluation_due) {
      result.stopped_by = asked_to_stop();
    } else {
      save_checkpoint(log);
    }
  }
  while (state_.step < schedule_.total && result.stopped_by == 0) {
    step(log, progress, speed, start);
    const bool last = state_.step == schedule_.total;
    const bool best = evaluation_due(last) && evaluate_now(log);
    const bool due = config_.save_steps > 0 && state_.step % config_.save_steps == 0;
    // Checked after the evaluation, which may be long. A run that has reached its end is not stopped.
    if (!last || state_.evaluation_due) result.stopped_by = asked_to_stop();
    if (last || best || result.stopped_by != 0 || due) save_checkpoint(log);
  }
  if (profiled.on()) profiled.report(output_, to_text(run::memory_use(dev_, *decoder_)));
  result.metrics = metrics_of(speed, first, start);
  if (result.stopped_by != 0) {
    lora::log::info("stopped after step ", state_.step, " of ", schedule_.total, "; checkpoint ",
                    checkpoints_->folder_of(state_.step).native());
  } else {
    if (state_.updates == 0 && skipped_ > 0)
      fail<Error>("no step had a finite loss and gradient: nothing was learned, and no final_model is written",
                  spoilt_weight());
    result.final_model = finish(result.metrics, first < state_.step || evaluates_first ? nullptr : &*resumed);
  }
  if (first < state_.step || evaluates_first || !io::is_there(output_ / "training_metrics.json"))
    run::write_training_metrics(output_, result.metrics);
  return result;
}

}  // namespace lora::train
