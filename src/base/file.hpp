// file.hpp: a whole file as text, read and written.
#pragma once
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "src/base/result.hpp"

namespace weft::internal {

// Opening a pipe waits for its writer, and reading it for its end: for commands, not for files that options name.
enum class Pipes { refused, read };
// weftInvalidUsage: it is larger, or a pipe; weftSystemError: it cannot be read. Both sentences name the file.
// Reentrant.
Result<std::string> read_file(const std::string& name, size_t bytes_most, Pipes pipes = Pipes::refused);
// A file of /proc or /sys; empty, with errno: it cannot be read. Reentrant.
std::string system_file(const std::string& name);
// Replaces the file's content by a FileWriter. weftSystemError: it cannot be written. Reentrant.
Status write_file(const std::string& name, const std::string& text);

// Writes a file in pieces. The text goes to a draft beside the file, which is renamed when it is complete. So a full
// disk leaves the old file intact. Pipes, devices, links and files of other users are written in place. Thread-bound.
class FileWriter {
  public:
    explicit FileWriter(const std::string& name);
    ~FileWriter();
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;
    void add(std::string_view text);
    // weftSystemError: the file cannot be opened, or some text could not be written.
    Status status() const;
    // Call it last. Without it, and after a failure, the draft is removed.
    Status finish();

  private:
    std::string name_, draft_;  // draft_ is empty: written in place
    std::FILE* file_ = nullptr;
    int error_ = 0;
};

}  // namespace weft::internal
