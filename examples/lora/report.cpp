#include <string>
#include <vector>

#include "commands.hpp"
#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/report/page.hpp"
#include "lora/settings/settings.hpp"
#include "standard_output.hpp"

int run_report(Request& request) {
  using namespace lora;
  const settings::Config& config = request.config;
  std::vector<lora::report::RunRecord> runs;
  for (const std::string& folder : config.runs) {
    runs.push_back(lora::report::read_run(folder));
    if (!runs.back().curves.empty()) continue;
    constexpr const char* no_lines = ": trainer_log.jsonl is not there or has no line yet";
    // An earlier page may show more.
    if (config.runs.size() == 1) fail<FormatError>(folder, no_lines, "; expected a step's");
    log::warn(folder, no_lines);
  }
  const io::Path own = config.runs[0];
  const io::Path page = config.output_file.empty() ? own / lora::report::page_file : io::Path(config.output_file);
  lora::report::write_page(page, lora::report::page_of(runs, settings::to_json({}, settings::train_command)));
  print_result(concat("the report is ", page.native(), "\n"));
  if (!config.output_file.empty()) return 0;
  const io::Path picture = own / lora::report::picture_file;
  lora::report::write_page(picture, lora::report::loss_picture(runs[0]));
  print_result(concat("the picture is ", picture.native(), "\n"));
  return 0;
}
