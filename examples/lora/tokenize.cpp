#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/core/error.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/files/text_encoding.hpp"
#include "lora/io/formats/unpack.hpp"
#include "lora/settings/settings.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace {

using namespace lora;

void print(std::span<const std::int32_t> ids) {
  std::string line = "[";
  for (const std::int32_t id : ids) line += concat(line.size() > 1 ? ", " : "", id);
  line += "]\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size())
    fail<IoError>("cannot write standard output: ", std::generic_category().message(errno));
}

void print_text(const tokenizer::Tokenizer& tokenizer, std::string_view text, std::string_view where) {
  try {
    print(tokenizer.encode(text).ids);
  } catch (const FormatError& error) {
    fail<FormatError>(where, ": ", std::string_view(error.what()));
  }
}

/// Prints one line for each line of the file, including empty ones.
void print_lines(const tokenizer::Tokenizer& tokenizer, const std::string& path) {
  const auto file = io::map_unpacked(path);
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  io::refuse_wide_text(path, text, tokenizer::unicode::find_invalid_utf8(text) == text.npos);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (Index number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    print_text(tokenizer, line, concat(path, ":", number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void print_records(const tokenizer::Tokenizer& tokenizer, const std::string& path, const settings::Config& config) {
  const auto records = data::Dataset::open(std::span(&path, 1), {.need_answer = false});
  const auto kinds = records.kinds();
  inputs::refuse_idle_keys(config, kinds);
  std::optional<data::ChatTemplate> chat;
  if (std::find(kinds.begin(), kinds.end(), data::Sample::Kind::messages) != kinds.end())
    chat = data::choose_template(config.template_name, tokenizer);
  inputs::refuse_unused_by(chat, config);
  auto options = inputs::render_options(config);
  options.add_generation_prompt = config.add_generation_prompt;
  for (Index i = 0; i < records.size(); ++i) {
    const data::Sample sample = records[i];
    if (sample.kind == data::Sample::Kind::tokens) {
      print(sample.tokens);
    } else if (sample.kind == data::Sample::Kind::text) {
      print_text(tokenizer, sample.text, sample.where);
    } else {
      try {
        options.tools = sample.tools;
        const auto rendering = chat->render(chat->turns_of(sample.messages, options), options);
        data::expect_markers(tokenizer, *chat, sample, rendering.text);
        print(data::encode_rendering(tokenizer, *chat, rendering.text).ids);
      } catch (const FormatError& error) {
        fail<FormatError>(sample.where, ": ", std::string_view(error.what()));
      }
    }
  }
  inputs::warn_of_unused_fields(records);
}

}  // namespace

int run_tokenize(Request& request) {
  const settings::Config& config = request.config;
  const io::Path model = inputs::find_model(config.model_name_or_path);
  const auto tokenizer = inputs::find_tokenizer(model);
  if (!tokenizer) inputs::fail_without_tokenizer(model);
  if (config.text) {
    print_text(*tokenizer, *config.text, "text");
  } else if (io::unpacked_name(config.file).extension() == ".txt") {
    print_lines(*tokenizer, config.file);
  } else {
    print_records(*tokenizer, config.file, config);
  }
  return 0;
}
