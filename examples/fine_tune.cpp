// Fine-tunes a model on a data set:   fine_tune MODEL DATASET OUTPUT_DIR
#include <cstdio>
#include <exception>
#include <lora/trainer.hpp>

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: fine_tune MODEL DATASET OUTPUT_DIR\n"), 2;
  lora::Config config;
  config.model_name_or_path = argv[1];  // a model folder, a .gguf file, or a name in the local Hugging Face cache
  config.dataset = {argv[2]};           // .json, .jsonl, .parquet, .csv or .txt
  config.output_dir = argv[3];
  config.learning_rate = 1e-3;
  lora::RunOptions options;
  options.on_step = [](const auto& step) { std::printf("step %d: loss %.4f\n", int(step.step), step.loss); };
  const auto result = lora::Trainer(config, options).train();
  std::printf("the adapter is in %s\n", result.final_model.c_str());
} catch (const std::exception& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), 1;
}
