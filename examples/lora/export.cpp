#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "lora/inputs/find_model.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/gguf_writer.hpp"
#include "lora/model/export/export_gguf.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/run/talk.hpp"
#include "open_model.hpp"

namespace {

using namespace lora;

void expect_new(const settings::Config& config) {
  if (io::is_there(config.output_file))
    fail<ConfigError>("key output_file: given ", config.output_file, ", which exists; allowed: a new file");
}

/// What general.name says: the last part of a path or a name.
std::string name_in_file(const std::string& name) {
  const io::Path path(name), last = path.has_filename() ? path : path.parent_path();
  return (last.extension() == ".gguf" ? last.stem() : last.filename()).native();  // "Qwen2.5-0.5B" has no extension
}

/// Where answers end, the token first that a tokenizer_config.json of the merged model would name.
std::vector<std::int32_t> ends_of(const model::Source& source, const run::Talk& talk) {
  if (!talk.stop_ids.empty()) return talk.stop_ids;
  std::vector<std::int32_t> ids = model::stop_ids_of(source);
  if (const auto eos = talk.tokenizer->eos()) {
    std::erase(ids, *eos);
    ids.insert(ids.begin(), *eos);
  }
  return ids;
}

/// Warns of what llama.cpp computes otherwise, although its file says it.
void warn_of_window(const model::Config& shape) {
  const bool is_lost = model::type_of(shape).windows == model::WindowRule::all;  // other types' windows are computed
  if (const Index window = model::narrowest_window(shape); window > 0 && is_lost)
    log::warn("llama.cpp computes a ", shape.model_type, " without its sliding window of ", window,
              " tokens: behind longer texts it gives other answers");
}

/// Opens the file, lets `fill` write its tensors, and makes it appear. Returns its size.
template <class Fill>
std::uint64_t write_file(const settings::Config& config, const io::GgufMetadata& metadata,
                         std::vector<io::TensorDeclaration> tensors, Fill&& fill) {
  io::clear_killed(config.output_file);
  io::GgufWriter writer(config.output_file, metadata, std::move(tensors));
  const io::Lock lock(writer.file().partial(), io::Lock::Of::file);  // see io::clear_killed
  fill(writer);
  expect_new(config);  // it may have come meanwhile
  writer.commit();
  return writer.size();
}

void tell(const settings::Config& config, std::string_view what, DType dtype, std::size_t tensors,
          std::uint64_t bytes) {
  const std::string type = ascii_lower(std::string(name_of(dtype)));
  log::info(config.output_file, ": ", what, ", ", type, ", ", tensors, " tensors, ", bytes, " bytes");
}

int export_adapter(const settings::Config& config, const model::Source& source, const io::Path& folder) {
  if (model::rotary_changed(source))
    fail<FormatError>(folder.native(),
                      ": was trained with other rotary settings than its base has, which an adapter's ",
                      "GGUF file can't say; expected the base's: export the merged model, without adapter_only");
  if (const Index window = model::narrowest_window(source.config());
      window > 0 && !model::type_of(source.config()).gguf_windows)
    fail<FormatError>(folder.native(), ": is of a base with a sliding window of ", window,
                      " tokens, which its GGUF file can't say; expected a base without");
  const model::GgufAdapter adapter(model::open_adapter(folder), source.config(), model::gguf_dtype(config.outtype));
  warn_of_window(source.config());
  const auto bytes = write_file(config, adapter.metadata(name_in_file(config.adapter_name_or_path)), adapter.tensors(),
                                [&](io::GgufWriter& writer) { adapter.write(writer); });
  if (const auto chat = tokenizer::read_chat_files(folder); !chat.chat_template.empty() || !chat.eos_token.empty())
    log::warn("the adapter's chat template and end of answers are not in its file: the base's file has the base's");
  tell(config, concat("an adapter of a ", source.config().model_type, " model"), adapter.dtype(),
       adapter.tensors().size(), bytes);
  return 0;
}

}  // namespace

int run_export(Request& request) {
  const settings::Config& config = request.config;
  expect_new(config);
  const auto source = inputs::open_source(config);
  const model::Config& shape = source.config();
  if (config.adapter_only) return export_adapter(config, source, inputs::find_adapter(config.adapter_name_or_path));

  model::check_gguf(shape, source.path().native());
  const auto tokenizer = inputs::find_tokenizer(source.path());
  if (!tokenizer) inputs::fail_without_tokenizer(source.path());
  const auto talk = run::talk_of(source, &*tokenizer, inputs::chat_files_of_adapter(config, *tokenizer));
  const DType dtype = model::gguf_dtype(config.outtype).value_or(model::gguf_dtype_of(source));
  const std::string name = name_in_file(config.model_name_or_path);
  auto metadata = model::gguf_metadata(shape, dtype, name);
  const std::string& learned = talk.changes.chat_template;
  tokenizer->add_to(metadata, shape.vocab_size,
                    {.chat_template = learned.empty() ? tokenizer->chat_template() : learned,
                     .stop_ids = ends_of(source, talk),
                     .bos_id = shape.bos_token_id,
                     .model_name = name});
  warn_of_window(shape);
  const auto tensors = model::gguf_tensors(shape, dtype);
  cpu::Device dev(static_cast<int>(config.threads.value_or(0)));
  auto decoder = open_decoder<float>(dev, source, config);
  const auto bytes = write_file(config, metadata, tensors, [&](io::GgufWriter& writer) {
    model::write_gguf_tensors(dev, decoder, dtype, writer);
  });
  const bool merged = !config.adapter_name_or_path.empty();
  tell(config, concat("a ", shape.model_type, " model", merged ? ", merged with its adapter" : ""), dtype,
       tensors.size(), bytes);
  return 0;
}
