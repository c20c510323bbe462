#include <cstdio>
#include <lora/trainer.hpp>
#include <string_view>

int main() {
  lora::Config config;
  config.model_name_or_path = "no_such_folder";
  config.dataset = {"no_such_file.jsonl"};
  config.output_dir = "out";
  try {
    lora::Trainer trainer(config);
  } catch (const lora::Error& error) {
    std::printf("%s\n", error.what());
    return std::string_view(error.what()).find("no_such_folder") == std::string_view::npos;
  }
  return 1;
}
