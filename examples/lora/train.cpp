#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "lora/instantiate.hpp"
#include "lora/run/environment.hpp"
#include "lora/trainer.hpp"
#include "preview.hpp"
#include "processes.hpp"
#include "signals.hpp"

int run_train(Request& request) {
  using namespace lora;
  if (request.config.preview > 0) {
    print_preview(request.config, inputs::open_source(request.config));
    return 0;
  }
  RunOptions options;
  std::vector<const char*> words;
  for (const std::string& word : request.words) words.push_back(word.c_str());
  options.command = run::quoted_command(words);
  options.stop = &asked_to_end;
  Processes processes(request.config);  // until all are there a signal ends it at once
  stop_after_the_step();
  processes.share_threads(request.config);
  options.ranks = processes.ranks();
  if (!processes.speaks())
    options.log = [](log::Level, std::string_view) {};  // the first rank says it
  else if (options.ranks != nullptr)
    log::info(processes.describe(request.config));
  Trainer trainer(request.config, options);
  const RunResult result = trainer.train();
  return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
}
