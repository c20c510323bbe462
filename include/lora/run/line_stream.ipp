#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <string>
#include <system_error>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
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
    // A pipe that is writable takes so many bytes at once; a write of more would wait for its reader.
    pollfd pipe{descriptor_, POLLOUT, 0};
    const int ready = ::poll(&pipe, 1, 1000 * patience_);
    if (ready == 0) return end(concat("it was not read for ", patience_, " seconds"));
    const auto written =
        ready < 0 ? ready : ::write(descriptor_, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) return end(std::generic_category().message(errno));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

LORA_INLINE void LineStream::end(std::string_view why) {
  log::warn("nobody reads ", name_, " any more (", why, "): lines go on in trainer_log.jsonl alone");
  descriptor_ = -1;
}

}  // namespace lora::run
