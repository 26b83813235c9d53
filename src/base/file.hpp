// file.hpp: a whole file as text, read and written.
#pragma once
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace weft::internal {

// Opening a pipe waits for who writes it, reading it for their end: for commands, not for what options name.
enum class Pipes { refused, read };
// weftInvalidUsage: it is larger, or a pipe; weftSystemError: it cannot be read. Both name it. Reentrant.
Result<std::string> read_file(const std::string& name, size_t bytes_most, Pipes pipes = Pipes::refused);
// A file of /proc or /sys; empty: it cannot be read, and errno says why. Reentrant.
std::string system_file(const std::string& name);
// In the place of what it held, by FileWriter. weftSystemError: it cannot be written. Reentrant.
Status write_file(const std::string& name, const std::string& text);

// Writes a file in pieces. The text goes to a draft beside it, which takes the file's name when all of it is written. So
// a full disk leaves the old file as it was. Pipes, devices, links and files of other users are written in place.
// Thread-bound.
class FileWriter {
  public:
    explicit FileWriter(const std::string& name);
    ~FileWriter();
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;
    void add(std::string_view text);
    // weftSystemError: it cannot be opened, or something that was added cannot be written.
    Status status() const;
    // Call it last. Without it, and after a failure, the draft is removed.
    Status finish();

  private:
    std::string name_, draft_;  // draft_ is empty: in place
    std::FILE* file_ = nullptr;
    int error_ = 0;
};

}  // namespace weft::internal
