#include "lora/io/formats/tensorboard.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/refused_operation.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

namespace tensorboard_test {

using namespace lora;
using namespace lora::io;

namespace {

const char* const file_name = "events.out.tfevents.lora";

void write_steps(TensorBoardWriter& writer, Index first, Index last) {
  for (Index step = first; step <= last; ++step) {
    const TensorBoardWriter::Scalar scalars[] = {{"train/loss", 0.5 * static_cast<double>(step)}, {"lr", 1e-3}};
    writer.write(step, scalars);
  }
}

}  // namespace

TEST_CASE("tensorboard: a file of any size is gone on after, and read piece by piece") {
  const test::TempFolder folder;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 20);
  }
  const auto path = folder / file_name;
  const auto bytes = std::filesystem::file_size(path);
  const auto kept = TensorBoardWriter::kept_through(folder.path(), 9).bytes;
  CHECK(test::steps_of_events(read_file(path).substr(0, kept)).back() == 9);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{13}, std::size_t{64}}) {
    CHECK(TensorBoardWriter::kept_through(folder.path(), 9, piece).bytes == kept);
    CHECK(TensorBoardWriter::kept_through(folder.path(), 99, piece).bytes == bytes);
  }
  CHECK(std::filesystem::file_size(path) == bytes);                       // asking changes nothing
  std::filesystem::resize_file(path, bytes + (std::uintmax_t{1} << 30));  // of holes
  { TensorBoardWriter writer(folder.path(), Index{99}); }
  CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("tensorboard: an event has the bytes of the protocol") {
  const test::TempFolder folder;
  TensorBoardWriter writer(folder.path());
  const TensorBoardWriter::Scalar scalars[] = {{"a/b", 1.5}};
  writer.write(300, scalars);
  const std::string bytes = read_file(folder / file_name);
  const auto header = io::detail::first_record(bytes);
  REQUIRE(header);
  // As every event file begins: the length 24 and its masked checksum.
  CHECK(header->substr(0, 12) == std::string_view("\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22", 12));
  CHECK(header->substr(12 + 9, 15) == std::string_view("\x1A\x0D"
                                                       "brain.Event:2"));
  const auto record = io::detail::first_record(std::string_view(bytes).substr(header->size()));
  REQUIRE(record);
  CHECK(header->size() + record->size() == bytes.size());
  // After the wall time: field 2, varint 300; field 5, 12 bytes: field 1, 10 bytes: field 1 "a/b", field 2 float 1.5.
  const std::string_view expected(
      "\x10\xAC\x02\x2A\x0C\x0A\x0A\x0A\x03"
      "a/b"
      "\x15\x00\x00\xC0\x3F",
      17);
  CHECK(record->substr(12 + 9, 17) == expected);
}

TEST_CASE("tensorboard: a resumed run keeps the events up to its step and goes on after them") {
  const test::TempFolder folder;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 200);
  }
  {
    TensorBoardWriter writer(folder.path(), Index{150});
    write_steps(writer, 151, 152);
  }
  const auto steps = test::steps_of_events(read_file(folder / file_name));
  REQUIRE(steps.size() == 153);
  for (Index i = 0; i < 153; ++i) CHECK(steps[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("tensorboard: an event that a killed run left cut or damaged goes") {
  const test::TempFolder folder;
  const auto path = folder / file_name;
  {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 3);
  }
  const std::string whole = read_file(path);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4}, std::size_t{20}}) {
    write_file(path, std::string_view(whole).substr(0, whole.size() - cut));
    { TensorBoardWriter writer(folder.path(), Index{9}); }
    CHECK(test::steps_of_events(read_file(path)) == std::vector<Index>{0, 1, 2});
  }
  std::string damaged = whole;
  damaged[whole.size() - 8] ^= 1;
  write_file(path, std::string_view(damaged));
  { TensorBoardWriter writer(folder.path(), Index{9}); }
  CHECK(test::steps_of_events(read_file(path)) == std::vector<Index>{0, 1, 2});
}

TEST_CASE("tensorboard: a new run starts a new file, a resumed one without a file too") {
  const test::TempFolder folder;
  for (int run = 0; run < 2; ++run) {
    TensorBoardWriter writer(folder.path());
    write_steps(writer, 1, 1);
  }
  CHECK(test::steps_of_events(read_file(folder / file_name)) == std::vector<Index>{0, 1});
  const test::TempFolder other;
  TensorBoardWriter writer(other.path(), Index{3});
  CHECK(test::steps_of_events(read_file(other / file_name)) == std::vector<Index>{0});
}

TEST_CASE("tensorboard: an event begins by the time at which it was written, in seconds") {
  const test::TempFolder folder;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  TensorBoardWriter writer(folder.path());
  write_steps(writer, 1, 1);
  {
    const test::RefusedOperation synced(FileOperation::Kind::sync, 0);
    writer.sync();
    CHECK(synced.paths == std::vector<Path>{folder / file_name});
  }
  const double after = now();
  const std::string bytes = read_file(folder / file_name);
  std::string_view left = bytes;
  for (int i = 0; i < 2; ++i) {
    const auto record = io::detail::first_record(left);
    REQUIRE(record);
    CHECK((*record)[12] == 0x09);
    double time = 0;
    std::memcpy(&time, record->data() + 13, sizeof time);
    CHECK(time >= before);
    CHECK(time <= after);
    left.remove_prefix(record->size());
  }
  CHECK(left.empty());
}

TEST_CASE("tensorboard: the step of an event is the number behind its time") {
  const std::string time = "\x09" + std::string(8, 'x');
  const auto step = [&](std::string_view rest) { return io::detail::step_of_event(time + std::string(rest)); };
  CHECK(step(std::string_view("\x10\x00", 2)) == 0);
  CHECK(step("\x10\x7F") == 127);
  CHECK(step("\x10\x80\x01") == 128);
  CHECK(step("\x10\xAC\x02\x2A") == 300);
  CHECK(step("\x10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F") == std::numeric_limits<Index>::max());
  CHECK(step("\x10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x7F") == -1);
  CHECK(step("\x10") == 0);
  CHECK(step("") == 0);
  CHECK(step("\x1A\x01z") == 0);
  CHECK(step("\x10\x85") == 5);
}

TEST_CASE("tensorboard: records are told from what is damaged in any of their four parts") {
  const std::string record = io::detail::framed("message"), two = record + io::detail::framed("");
  CHECK(io::detail::first_record(record) == record);
  CHECK(io::detail::first_record(two) == record);
  CHECK(io::detail::first_record(std::string_view(two).substr(record.size()))->size() == 16);
  for (std::size_t size = 0; size < record.size(); ++size)
    CHECK_FALSE(io::detail::first_record(std::string_view(record).substr(0, size)));
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    CAPTURE(at);
    CHECK_FALSE(io::detail::first_record(damaged));
  }
}

TEST_CASE("tensorboard: what is kept ends before the first later step, and an empty file gets a head") {
  const test::TempFolder folder;
  CHECK(TensorBoardWriter::kept_through(folder.path(), 5).bytes == 0);
  {
    TensorBoardWriter writer(folder / "deep/er");
    write_steps(writer, 3, 3);
    write_steps(writer, 7, 7);
    write_steps(writer, 4, 4);
  }
  const auto steps_kept = [&](Index step) {
    const auto kept = TensorBoardWriter::kept_through(folder / "deep/er", step).bytes;
    return test::steps_of_events(read_file(folder / "deep/er" / file_name).substr(0, kept));
  };
  CHECK(steps_kept(0) == std::vector<Index>{0});
  CHECK(steps_kept(2) == std::vector<Index>{0});
  CHECK(steps_kept(3) == std::vector<Index>{0, 3});
  CHECK(steps_kept(6) == std::vector<Index>{0, 3});
  CHECK(steps_kept(7) == std::vector<Index>{0, 3, 7, 4});
  CHECK(steps_kept(-1).empty());
  { TensorBoardWriter writer(folder / "deep/er", std::optional(TensorBoardWriter::Kept{0})); }
  CHECK(test::steps_of_events(read_file(folder / "deep/er" / file_name)) == std::vector<Index>{0});
}

TEST_CASE("tensorboard: each number has its tag, in their order, and a step may have none") {
  const test::TempFolder folder;
  {
    TensorBoardWriter writer(folder.path());
    const std::string long_tag(200, 't');
    const TensorBoardWriter::Scalar scalars[] = {{"b", -0.25}, {long_tag, 1e30}, {"a", 0.0}};
    writer.write(1 << 21, scalars);
    writer.write(0, {});
  }
  CHECK(test::lines_of_events(read_file(folder / file_name), {}) ==
        std::vector<std::string>{"0", "2097152 b=-0.25 " + std::string(200, 't') + "=1e+30 a=0", "0"});
}

}  // namespace tensorboard_test
