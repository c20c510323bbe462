// A custom training loop, built from the library's parts:   custom_loop MODEL TOKENS OUTPUT_DIR
// TOKENS has lines of {"input_ids": […], "labels": […]}, so that no tokenizer is needed.
#include <cmath>
#include <cstdio>
#include <exception>
#include <lora/lora.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace lora;
using Device = cpu::Device;

void train_adapter(const std::string& model_path, const std::string& tokens, const std::string& output) {
  // The device: this machine's processors, as many threads as the process may use.
  Device dev;
  // The frozen model, used in place from its mapped files.
  const auto source = model::Source::open(model_path);
  model::Decoder<Device, float> decoder(dev, source);
  // The adapter: rank 8 on the attention's projections, started as PEFT does.
  model::AdapterConfig adapter;
  adapter.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  adapter.base_model = model_path;
  decoder.attach(dev, adapter);
  model::init_adapter(dev, decoder, 42);

  // The data: which record comes when is a function of the seed and the sample's number.
  const std::vector<std::string> files = {tokens};
  const inputs::Records records(data::Dataset::open(files), data::Encoder(nullptr, std::nullopt, {}));
  std::vector<Index> numbers(static_cast<std::size_t>(records.size()));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  data::Order order(numbers, 42, true);

  // Two epochs of AdamW with a linear schedule; a step has four sequences, a micro-batch two.
  train::Stepper<Device, float> stepper(dev, decoder, {}, 1.0, 42);
  const Index steps = data::StepPlan{order.size(), 4}.steps(2, -1);
  const optim::Schedule schedule{optim::Decay::linear, optim::warmup_of(0, 0.1, steps), steps};
  train::Plan plan(std::move(order), 1, {{4, {.sequences = 2}, 2e-3, schedule}});
  for (Index step = 0; step < plan.total(); ++step) {
    const train::PlannedStep planned = plan.at(step);
    const auto batches = train::batches_of(records, planned, stepper.own_units());
    const auto result = stepper.accumulate(dev, step, std::span(batches));
    if (!result.has_labels()) continue;
    if (!result.finite()) fail<Error>("step ", step + 1, " has no finite loss");
    stepper.update(dev, result, planned.learning_rate);
    std::printf("step %d: loss %.4f, gradient norm %.4f, learning rate %.2e\n", static_cast<int>(step + 1), result.loss,
                result.grad_norm, planned.learning_rate);
  }

  io::create_folders(output);
  model::save_adapter(dev, decoder, output);  // loads in PEFT as it is
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: custom_loop MODEL TOKENS OUTPUT_DIR\n"), 2;
  train_adapter(argv[1], argv[2], argv[3]);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
