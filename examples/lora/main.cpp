#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "commands.hpp"
#include "launch.hpp"
#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/settings/yaml_file.hpp"
#include "processes.hpp"
#include "processor.hpp"
#include "signals.hpp"

namespace {

constexpr int failed = 1, bad_usage = 2;

int run_command(Request& request) {
  using namespace lora::settings;
  switch (request.command) {
    case train_command:
      return run_train(request);
    case eval_command:
      return run_eval(request);
    case generate_command:
      return run_generate(request);
    case chat_command:
      return run_chat(request);
    case merge_command:
      return run_merge(request);
    case export_command:
      return run_export(request);
    case tokenize_command:
      return run_tokenize(request);
    case doctor_command:
      return run_doctor(request);
    case plan_command:
      return run_plan(request);
    case report_command:
      return run_report(request);
  }
  return bad_usage;
}

/// Opens closed standard streams, so that no other file gets their descriptors: messages would be written into it.
/// Writing to a closed standard output still fails, as it should.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);  // gets the lowest free descriptor
}

/// Standard output is a result: failing to write it is an error.
void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) lora::fail<lora::IoError>("cannot write standard output");
}

int say(const char* kind, std::string_view message, int status) {
  const std::string name = name_of_failed_process();
  std::fprintf(stderr, "%s%s%s\n", kind, lora::printable(name).c_str(), lora::printable(message).c_str());
  end_all_processes(status);
  return status;
}

/// Memory may also end where no exception can leave: values of JSON take some in their destructor.
[[noreturn]] void end_without_memory() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    end_all_processes(failed);
    std::_Exit(failed);
  } catch (...) {  // a defect, of which the signal tells
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  open_closed_streams();
  std::set_terminate(end_without_memory);
  if (const char* feature = missing_processor_feature()) {
    std::fprintf(stderr, "error: this program was built for a processor with %s, which this one lacks; build it here\n",
                 feature);
    return failed;
  }
  try {
    if (const auto page = launch(argc, argv)) {
      std::fputs(page->c_str(), stdout);
      finish_output();
      return 0;
    }
    Request request = read_command_line(argc, argv);
    std::fputs(request.answer.c_str(), stdout);
    if (request.answer.empty()) handle_signals();
    const int status = request.answer.empty() ? run_command(request) : 0;
    finish_output();
    return status;
  } catch (const lora::settings::FileError& error) {
    const std::string lines = error.what();
    for (std::size_t begin = 0, end = 0; end < lines.size(); begin = end + 1) {
      end = std::min(lines.find('\n', begin), lines.size());
      say("error: ", std::string_view(lines).substr(begin, end - begin), bad_usage);
    }
    return bad_usage;
  } catch (const lora::ConfigError& error) {
    return say("error: ", error.what(), bad_usage);
  } catch (const std::bad_alloc&) {
    return say("error: ", "out of memory", failed);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return say("error: ", error.what(), failed);
    return say("error: ", "the system starts no more threads; fewer of them (key threads) may do", failed);
  } catch (const std::exception& error) {
    return say("error: ", error.what(), failed);
  }
}
