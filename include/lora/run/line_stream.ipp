#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/run/line_stream.hpp"
#include "lora/run/metrics_log.hpp"

namespace lora::run {

LORA_INLINE void LineStream::expect_open(int descriptor, std::string_view name) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY)
    fail<IoError>("key report_to: given jsonl, but ", name, " is closed");
}

LORA_INLINE void LineStream::take(const Event& event) {
  if (descriptor_ < 0) return;
  const auto line = line_of(event);
  if (!line) return;
  for (std::string_view rest = *line; !rest.empty();) {
    const auto written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      log::warn("nobody reads ", name_, " any more (", std::generic_category().message(errno),
                "): lines go on in trainer_log.jsonl alone");
      descriptor_ = -1;
      return;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace lora::run
