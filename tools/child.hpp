// child.hpp: a program that a command starts, with its output kept in memory.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// Move-only owner: a child that still runs is killed. Thread-bound.
class Child {
  public:
    // `words[0]` is a path, or a name in PATH. `variables`, as "NAME=value", replace those of this process.
    static Result<Child> start(const std::vector<std::string>& words, const std::vector<std::string>& variables = {});
    Child(Child&& other) noexcept;
    Child& operator=(Child&&) = delete;
    ~Child();

    bool ended();
    // False: the child was killed after `limit_ms`.
    bool wait(int64_t limit_ms);
    void kill() const;
    int status() const { return status_; }  // of waitpid(), once it has ended
    std::string output() const { return text_of(output_); }
    std::string error() const { return text_of(error_); }

  private:
    Child(pid_t pid, Fd output, Fd error) : pid_(pid), output_(std::move(output)), error_(std::move(error)) {}
    static std::string text_of(const Fd& file);

    pid_t pid_;
    Fd output_, error_;
    int status_ = 0;
    bool ended_ = false;
};

}  // namespace weft::internal::tools
