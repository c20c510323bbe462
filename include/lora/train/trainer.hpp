#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/data/answer_scores.hpp"
#include "lora/inputs/adapter_start.hpp"
#include "lora/inputs/device.hpp"
#include "lora/inputs/paths.hpp"
#include "lora/inputs/run_data.hpp"
#include "lora/run/earlier_run.hpp"
#include "lora/run/environment.hpp"
#include "lora/run/final_model.hpp"
#include "lora/run/memory_use.hpp"
#include "lora/run/profile.hpp"
#include "lora/run/progress.hpp"
#include "lora/run/state.hpp"
#include "lora/settings/settings.hpp"
#include "lora/train/account.hpp"
#include "lora/train/answers.hpp"
#include "lora/train/evaluate.hpp"
#include "lora/train/memory_plan.hpp"
#include "lora/train/non_finite.hpp"
#include "lora/train/offload.hpp"
#include "lora/train/options.hpp"
#include "lora/train/plan.hpp"
#include "lora/train/resume.hpp"
#include "lora/train/saving.hpp"
#include "lora/train/start.hpp"
#include "lora/train/step.hpp"
#include "lora/train/summary.hpp"
#include "lora/train/upcoming.hpp"

namespace lora::train {

/// A fine-tuning run, from settings to the files in output_dir.
template <AnyDevice D, class T>
class TrainingRun {
 public:
  /// Opens model and data and checks everything that can be checked before anything is written.
  /// Throws   ConfigError, FormatError, IoError
  TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options);
  ~TrainingRun();  // instantiated with the class rather than wherever a run ends
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the end, or until the stop flag is set.
  RunResult run();

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool draws_bar() const { return !options_.log && ::isatty(STDERR_FILENO) == 1; }

  void attach() {
    inputs::choose_what_trains(dev_, *decoder_, config_);
    blueprint_ = inputs::blueprint_of(config_, source_);
    expect_something_trains(config_, *plan_, decoder_->params().table());
    // Before there is an optimizer, which has moments of what trains only.
    if (const auto& trains = plan_->stages().front().trains) decoder_->params().train(dev_, trains);
    decoder_->embedding_noise(config_.neftune_noise_alpha.value_or(0));
    stepper_.emplace(dev_, *decoder_,
                     optim::AdamWSettings{config_.adam_beta1, config_.adam_beta2, config_.adam_epsilon,
                                          config_.weight_decay, config_.loraplus_lr_ratio.value_or(1)},
                     config_.max_grad_norm, static_cast<std::uint64_t>(config_.seed), alone_,
                     StepSharing{.units = config_.step_units}, state_place(config_));
  }

  /// Makes a stage's choice of what trains, and of the layers whose gradients are checkpointed.
  void enter(Index stage) {
    const auto number = static_cast<std::size_t>(stage);
    if (const auto& trains = plan_->stages()[number].trains) stepper_->train(dev_, trains);
    decoder_->recompute(memory_[number].recomputed);
  }

  /// Begins the stage that the next step belongs to.
  void begin_stage() {
    state_.stage = plan_->stage_of(state_.step);
    state_.next_sample = plan_->samples_before(state_.step);
    lora::log::info("step ", state_.step, ": ", settings::stage_name(config_, static_cast<std::size_t>(state_.stage)),
                    " begins");
    enter(state_.stage);
  }

  /// After a step and its evaluation, or an evaluation that a resumed run makes first: begins the next stage where the
  /// step was its stage's last, by the plan or, if it was `evaluated`, for want of better evaluations.
  void turn_stage(bool evaluated) {
    if (state_.step == 0 || state_.step == plan_->total()) return;
    const Index stage = plan_->stage_of(state_.step - 1);
    if (state_.evaluation_due || state_.ended_early) {
      enter(state_.stage);  // as checkpoints have it; it begins once the evaluation is made, or not at all
    } else if (stage != state_.stage) {
      begin_stage();
    } else if (evaluated && is_out_of_patience(state_, config_)) {
      end_stage();
    }
  }

  /// Ends the stage of the last step for want of better evaluations, or with the last stage the run.
  void end_stage() {
    const Index waited = state_.evaluations_without_improvement;
    const std::string why = concat(waited, waited == 1 ? " evaluation" : " evaluations", " without improvement of ",
                                   config_.metric_for_best_model, "; the best was step ", state_.step_to_beat(), "'s");
    if (state_.stage + 1 == std::ssize(plan_->stages())) {
      lora::log::info("the run ends early: ", why);
      state_.ended_early = state_.out_of_patience = true;
      return;
    }
    lora::log::info(settings::stage_name(config_, static_cast<std::size_t>(state_.stage)), " ends early after step ",
                    state_.step, ": ", why);
    state_.ended_stages.push_back(state_.step);
    upcoming_->forget();
    plan_->end_stages(state_.ended_stages);
    begin_stage();
  }

  /// Changes no file. Returns   what is to be said of a best checkpoint that is lost
  std::string restore(const run::Checkpoint& checkpoint) {
    io::Json settings = std::move(state_.settings);
    state_ = checkpoint.state;
    state_.settings = std::move(settings);
    if (state_.ended_early && !stays_ended(state_, config_)) state_.ended_early = state_.out_of_patience = false;
    if (!state_.unlogged.is_null())
      unlogged_ = run::step_metrics_from(io::JsonView(state_.unlogged, checkpoint.folder.native(), "unlogged"));
    state_.unlogged = io::Json();  // clang 14 leaks the old value with `= {}`
    if (state_.stage > 0) enter(state_.stage);
    saving_->load(checkpoint);
    stepper_->with_optimizer(dev_, [&](auto& dev, auto& optimizer) {
      run::load_optimizer(dev, optimizer, state_.updates, checkpoint.folder);
    });
    return saving_->forget_lost_best(state_, earlier_->goes_on_here());
  }

  PreparedStep next_step() {
    const Span waiting(dev_, Profile::Kind::phase, "data");
    return upcoming_->take(state_.step);
  }

  void step(run::MetricsLog& log, run::Progress& progress, run::Throughput& speed, Clock::time_point start) {
    const auto begin = Clock::now();
    const Span whole(dev_, Profile::Kind::step, "step");
    const PreparedStep prepared = next_step();
    const auto& batches = prepared.units;
    const StepResult result =
        stepper_->accumulate(dev_, state_.step, std::span<const std::vector<data::Batch>>(batches),
                             state_.loss_scale ? state_.loss_scale->value : 1);
    const double rate = prepared.plan.learning_rate;
    const bool applies = is_usable(result, batches, log);
    if (applies) stepper_->update(dev_, result, rate);

    add_step(state_, result, applies, stepper_->updates(dev_), *plan_);
    if (const auto part = plan_->curriculum_part(prepared.plan.step); part)
      add_drawn(state_, *part, applies ? std::span(batches) : std::span<const std::vector<data::Batch>>(),
                [&](Index record) -> const std::string& { return data_->label_of(record); });
    add_files(state_, file_names_, applies ? std::span(batches) : std::span<const std::vector<data::Batch>>(),
              [&](Index record) { return data_->train().dataset().file_number(record); });
    const double seconds = seconds_since(begin);
    speed.add(result.tokens, seconds);
    run::StepMetrics metrics = train::metrics_of(state_, result, applies, rate, seconds, *plan_);
    metrics.elapsed_seconds = log.elapsed_seconds() + seconds_since(start);
    const bool last = state_.step == plan_->total();
    unlogged_ = metrics;
    if (last || state_.step % config_.logging_steps == 0) {
      write_line(log, progress, applies || last);  // a skipped step on the way has a warning instead
    } else {
      progress.step(metrics, false);
    }
    if (options_.on_step) call([&](Running& running) { options_.on_step(metrics, running); });
  }

  /// Writes the last step's line, unless it has one.
  void write_line(run::MetricsLog& log, run::Progress& progress, bool shown) {
    if (!unlogged_) return;
    log.write(*unlogged_);
    state_.losses_since_line = {};
    progress.step(*unlogged_, shown);
    unlogged_.reset();
  }

  /// Whether the step's gradient may be applied. If it overflows at a loss scale, the step is skipped; if it is not
  /// finite otherwise, the run stops or the step is skipped, as on_non_finite says.
  bool is_usable(const StepResult& result, const std::vector<std::vector<data::Batch>>& units, run::MetricsLog& log) {
    if (!result.has_labels()) {
      lora::log::warn("step ", state_.step + 1, " has no labelled token and is skipped");
      return false;
    }
    if (result.finite()) return true;
    if (state_.loss_scale && result.overflows() && state_.loss_scale->can_shrink()) {
      lora::log::info("step ", state_.step + 1, ": the gradient overflows at loss scale ", result.loss_scale,
                      "; the step is skipped, and the scale halves");
      ++state_.overflows;
      return false;
    }
    std::string what = describe_non_finite(state_.step + 1, result, units, data_->train());
    if (state_.loss_scale) what += "; float16 ends at 65504, dtype bfloat16 and float32 don't";
    if (config_.on_non_finite == "skip") {
      lora::log::warn(what, state_.skipped == 0 ? spoilt_weight() : "", "; the step is skipped");
      ++state_.skipped;
      return false;
    }
    const std::string cause = spoilt_weight();
    try {
      save_checkpoint(log);
    } catch (const NonFiniteError& error) {  // the weights hold it already, of the base or since an earlier step
      fail<Error>(what, cause.empty() ? concat("; ", std::string_view(error.what())) : cause,
                  "; there is no sound state to save");
    }
    fail<Error>(what, cause, "; the state before it is ", saving_->checkpoints().folder_of(state_.step).native());
  }

  std::string spoilt_weight() { return train::spoilt_weight(dev_, config_, source_, state_.updates); }

  bool evaluation_due(bool last) {
    if (!data_->evaluates()) return false;
    const Index every = config_.eval_steps.value_or(config_.seeks_best() ? config_.save_steps : 0);
    if (!last && (every == 0 || state_.step % every != 0)) return false;
    bool wanted = true;
    if (options_.evaluates) call([&](Running& running) { wanted = options_.evaluates(running); });
    return wanted;
  }

  /// Calls f(Running&), which may end the run.
  template <class F>
  void call(const F& f) {
    Running running(RunModel<D, T>{dev_, *decoder_}, data_->text(), state_, plan_->total());
    f(running);
    if (running.finishes() && state_.step < plan_->total()) state_.ended_early = true;
  }

  /// Generates the answers of the evaluation records that have one; nothing if it was stopped.
  std::optional<data::AnswerScores> answer_now() {
    const inputs::TextFiles& text = data_->text();
    const std::vector<data::Sample> samples = data_->answered();
    run::CountProgress progress("answering", "records", std::ssize(samples), 30, draws_bar());
    model::GenerateOptions generate;
    generate.max_new_tokens = config_.max_new_tokens;
    const inputs::Taught taught = inputs::taught_by(data_->train().dataset().kinds(), text);
    generate.stop_ids = inputs::stop_ids(source_, *text.tokenizer, text.chat_template, taught.files);
    data::AnswerScores scores(text.chat_template);
    const bool whole = answer_all(
        dev_, *decoder_, *text.tokenizer, data_->eval().encoder(), std::span<const data::Sample>(samples), generate, {},
        progress, [&](const data::Sample& sample, const std::string& answer) { scores.add(sample, answer); },
        options_.stop);
    return whole ? std::optional(scores) : std::nullopt;
  }

  /// True if the model is the best so far and load_best_model_at_end is set. If it is stopped, the resumed run
  /// evaluates again.
  bool evaluate_now(run::MetricsLog& log) {
    const auto& order = data_->eval_order();
    const auto example_of = [&](Index i) { return data_->eval()[order[i]]; };
    const Index count = order.size();
    run::CountProgress progress("evaluating", "records", count, 30, draws_bar());
    const auto totals = evaluate(
        dev_, *decoder_, count, example_of, config_.per_device_eval_batch_size, settings::longest_cutoff(config_),
        [&](const EvaluationTotals& sums) { progress.reached(sums.records, sums.tokens); }, options_.stop);
    progress.clear();
    state_.evaluation_due = totals.stopped;
    if (totals.stopped) return false;
    run::EvalMetrics metrics;
    metrics.step = state_.step;
    metrics.loss = totals.loss();
    metrics.token_accuracy = totals.token_accuracy();
    if (config_.eval_predict) {
      const auto scores = answer_now();
      state_.evaluation_due = !scores;
      if (!scores) return false;
      metrics.exact_match = scores->exact_match();
      metrics.rouge_l = scores->rouge_l();
    }
    log.write(metrics);
    lora::log::info("step ", state_.step, ": evaluation loss ", fixed(metrics.loss, 4), ", perplexity ",
                    significant(metrics.perplexity(), 4), ", token accuracy ", fixed(100 * metrics.token_accuracy, 1),
                    " %",
                    metrics.exact_match ? concat(", exact match ", fixed(100 * *metrics.exact_match, 1), " %, ROUGE-L ",
                                                 fixed(100 * *metrics.rouge_l, 1), " %")
                                        : "");
    const Index stage = state_.step > 0 ? plan_->stage_of(state_.step - 1) : 0;
    const bool better = add_evaluation(state_, metrics, config_, stage);
    if (options_.on_evaluation) call([&](Running& running) { options_.on_evaluation(metrics, running); });
    return better && config_.load_best_model_at_end;
  }

  void save_checkpoint(run::MetricsLog& log) {
    state_.unlogged = state_.evaluation_due && unlogged_ ? run::to_json(*unlogged_) : io::Json();
    saving_->checkpoint(state_, *stepper_, log);
  }

  run::RunMetrics metrics_of(const run::Throughput& speed, Index first, Clock::time_point start) const {
    run::RunMetrics metrics = lasting_metrics(state_, *plan_, data_->absent_class_field());
    metrics.tokens_per_second = speed.tokens_per_second();
    metrics.peak_memory_gib = run::peak_memory_gib();
    metrics.seconds = seconds_since(start);
    metrics.resumed_from_step = first;
    return metrics;
  }

  /// `has_result`: final_model is in place, for there was nothing to do.
  io::Path finish(run::RunMetrics& metrics, bool has_result) {
    const io::Path folder = output_ / "final_model";
    if (has_result) {
      lora::log::info(
          "nothing to do: the run is finished, step ", state_.step, " of ", plan_->total(),
          state_.out_of_patience ? ", where early_stopping_patience ended it (a larger one lets it go on)" : "",
          "; the ", config_.result_name(), " is in ", folder.native());
      return folder;
    }
    const bool takes_best = config_.load_best_model_at_end && state_.best_eval_loss && state_.best_step != state_.step;
    const auto best = takes_best ? saving_->take_best(state_) : std::nullopt;
    const run::RunMetrics weights = best ? lasting_metrics(*best, *plan_, data_->absent_class_field()) : metrics;
    saving_->final_model(metrics, weights, folder);
    metrics.weights_step = weights.steps;
    return folder;
  }

  D& dev_;
  settings::Config config_;
  RunOptions options_;
  model::Source source_;
  io::Path output_;
  inputs::HostThreads<D> threads_;
  std::optional<run::EarlierRun> earlier_;
  std::optional<inputs::RunData> data_;
  std::optional<Plan> plan_;
  std::optional<data::EncodeSummary> summary_;
  std::unique_ptr<model::Decoder<D, T>> decoder_;
  model::Blueprint blueprint_;  // of the decoder
  comm::Single alone_;
  std::optional<Stepper<D, T>> stepper_;
  std::optional<Saving<D, T>> saving_;
  run::RunState state_;
  std::vector<MemoryPlan> memory_;       // of each stage
  std::vector<std::string> file_names_;  // of the files whose records are counted: several, or with a name
  std::optional<Upcoming> upcoming_;
  std::optional<run::StepMetrics> unlogged_;  // of the last step, while it has no line in the log
};

// Outside of the class: inside they would be inline and compiled by every source that calls them.

template <AnyDevice D, class T>
TrainingRun<D, T>::TrainingRun(D& dev, settings::Config config, model::Source source, RunOptions options)
    : dev_(dev),
      config_(std::move(config)),
      options_(std::move(options)),
      source_(std::move(source)),
      threads_(dev, config_) {
  const auto redirect = redirected(options_);
  settings::validate(config_, settings::train_command);
  expect_offload_fits<D>(config_);
  output_ = config_.output_dir;
  earlier_.emplace(config_, inputs::paths_of(config_, source_.path(), options_.records));
  data_.emplace(
      *threads_, config_, source_.path(), source_.config().vocab_size,
      [this](std::string_view name) { return earlier_->setting(name); }, options_.records);
  options_.records.clear();
  if (!data_->date().empty()) config_.date = data_->date();
  if (data_->enable_thinking()) config_.enable_thinking = data_->enable_thinking();
  plan_.emplace(plan_of(config_, data_->order(), inputs::trained_in_stages(config_, source_.config(), options_.trains),
                        data_->classes(), data_->mixture()));
  if (config_.dataset.size() > 1 || settings::have_names(config_.dataset))
    file_names_ = data::names_of(config_.dataset);
  expect_whole_blocks(config_, *plan_, data_->train());
  decoder_ = std::make_unique<model::Decoder<D, T>>(dev_, source_, weight_places(config_));
  attach();
  const auto found = data_->survey(*threads_, config_);
  summary_ = found.train;
  if (plan_->total() < 1)
    fail<ConfigError>("key num_train_epochs: given ", config_.num_train_epochs, ", which is not even one step");
  if (config_.trains_model()) {
    (void)model::merged_config(source_, stored_dtype(precision_of<T>()));  // final_model will need it
  } else if (run::brings_config(source_)) {
    (void)model::config_json_of(source_);
  }
  memory_ = plan_memory<D, T>(
      memory_basis<D, T>(dev_, blueprint_, decoder_->streaming()), *plan_, *summary_,
      largest_evaluation(found.eval, config_.per_device_eval_batch_size, settings::longest_cutoff(config_)), config_);
  keep_layers(dev_, *decoder_, memory_, config_);
  // After the forecast, which would count the weights that this reads twice.
  if (config_.trains_model()) model::expect_finite(dev_, source_);
  enter(0);
  const inputs::TextFiles& text = data_->text();
  inputs::Taught taught = inputs::taught_by(data_->train().dataset().kinds(), text);
  saving_.emplace(dev_, *decoder_, config_, source_,
                  run::talk_of(source_, text.tokenizer.get(), taught.files, std::move(taught.template_name)), *plan_,
                  data_->absent_class_field());
  upcoming_.emplace(*plan_, data_->train(), stepper_->own_units());
}

template <AnyDevice D, class T>
TrainingRun<D, T>::~TrainingRun() = default;

template <AnyDevice D, class T>
RunResult TrainingRun<D, T>::run() {
  const auto start = Clock::now();
  const auto redirect = redirected(options_);
  io::create_folders(output_);
  const io::Lock lock(output_);
  const auto resumed = earlier_->find_checkpoint();
  if constexpr (std::same_as<T, f16>) state_.loss_scale.emplace();
  state_.settings = noted_settings(config_, source_, *decoder_, options_.trains, *data_, *plan_);
  if (resumed) expect_fits(*resumed, state_.settings, config_, source_, *plan_);
  const Index first = resumed ? resumed->state.step : 0;
  // The last step to be done.
  const Index end = resumed && stays_ended(resumed->state, config_) ? first : plan_->total();
  if (first < end) io::expect_room(output_, saving_->checkpoint_bytes(), "a checkpoint");
  // All that may fail comes before earlier_->take, which is the first to change anything.
  const std::string lost = resumed ? restore(*resumed) : std::string();
  const auto kept =
      resumed && earlier_->goes_on_here() ? std::optional(run::MetricsLog::kept_through(output_, first)) : std::nullopt;
  // The run was stopped during it, or has not begun.
  const bool evaluates_first =
      data_->evaluates() && (state_.evaluation_due || (!resumed && config_.eval_on_start && end > 0));
  earlier_->take(resumed, end, evaluates_first);
  if (resumed) saving_->rotate(state_);  // the run may have been killed just before
  const bool has_result = earlier_->folder().has_result();
  // First of all, since they identify the folder as a run's. Those of a finished run say how its results came about.
  if (!has_result)
    write_run_files(output_, resolved_settings(config_, dev_, *decoder_, data_->text()), dev_.describe(),
                    options_.environment, options_.command);
  run::Progress progress(output_ / "training.log", resumed.has_value(), plan_->total(), first, draws_bar());
  say_start(config_, blueprint_, *summary_, *plan_, largest(memory_), dev_.memory(), source_.is_initial(),
            data_->text().tokenizer.get());
  say_offload(decoder_->streaming());
  say_mixture(data_->mixture(), file_names_);
  if (resumed) lora::log::info("resuming from ", resumed->folder.native(), ", step ", first);
  if (!lost.empty() && !has_result) lora::log::warn(lost);
  progress.begin();
  run::MetricsLog log(output_, kept);
  RunResult result;
  run::Throughput speed;
  const run::ProfiledRun<D> profiled(dev_, config_.profile, end - first);
  const auto asked_to_stop = [&] { return options_.stop != nullptr ? options_.stop->load() : 0; };
  const auto is_over = [&] { return state_.ended_early || state_.step == plan_->total(); };
  if (evaluates_first) {
    evaluate_now(log);
    turn_stage(!state_.evaluation_due);
    progress.ends_with(plan_->total());
    if (is_over() && !state_.evaluation_due) write_line(log, progress, true);
    if (state_.evaluation_due) result.stopped_by = asked_to_stop();
    if (state_.evaluation_due != resumed.has_value()) save_checkpoint(log);  // the state is not what is on disk
  }
  while (!is_over() && result.stopped_by == 0) {
    step(log, progress, speed, start);
    const bool evaluates = evaluation_due(is_over());
    const bool best = evaluates && evaluate_now(log);
    turn_stage(evaluates);  // before the checkpoint, which holds what the next stage begins with
    progress.ends_with(plan_->total());
    const bool last = is_over();
    if (last && !state_.evaluation_due) write_line(log, progress, true);
    const bool due = config_.save_steps > 0 && state_.step % config_.save_steps == 0;
    // Checked after the evaluation, which may be long. A run that has reached its end is not stopped.
    if (!last || state_.evaluation_due) result.stopped_by = asked_to_stop();
    if (last || best || result.stopped_by != 0 || due) save_checkpoint(log);
  }
  if (profiled.on()) profiled.report(output_, to_text(run::memory_use(dev_, *decoder_)));
  result.metrics = metrics_of(speed, first, start);
  result.metrics.finished = result.stopped_by == 0;
  if (result.stopped_by != 0) {
    lora::log::info("stopped after step ", state_.step, " of ", plan_->total(), "; checkpoint ",
                    saving_->checkpoints().folder_of(state_.step).native());
  } else {
    if (state_.updates == 0 && state_.overflows > 0)
      fail<Error>("no step had a finite gradient at a loss scale from ", optim::LossScale().value, " down to ",
                  state_.loss_scale->value, ": nothing was learned, and no final_model is written");
    if (state_.updates == 0 && state_.skipped == 0 && state_.step > 0)
      fail<Error>("no step had a labelled token: nothing was learned, and no final_model is written");
    if (state_.updates == 0 && state_.skipped > 0)
      fail<Error>("no step had a finite loss and gradient: nothing was learned, and no final_model is written",
                  spoilt_weight());
    result.final_model = finish(result.metrics, has_result);
    if (!has_result) say_end(config_, result.metrics, log.elapsed_seconds() + seconds_since(start));
  }
  if (!io::is_there(output_ / run::metrics_file)) run::write_training_metrics(output_, result.metrics);
  return result;
}

}  // namespace lora::train
