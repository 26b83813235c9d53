// system_files.hpp: /sys and /proc as those who detect read them, or a folder that stands for them in tests. What is
// not there is unknown; what may not be read is remembered, to be said.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::internal::topology {

// Names of networks may hold any bytes, XML none that are no letters: each of those becomes a question mark.
std::string printable(std::string text);

// Names below the root without a slash in front: "class/net". Thread-bound.
class SystemFiles {
  public:
    explicit SystemFiles(std::string root) : root_(std::move(root)) {}
    const std::string& root() const { return root_; }

    // Printable, without white space at its end; none: there is no such file, or it has nothing to say now.
    std::optional<std::string> text(const std::string& name);
    std::optional<long long> number(const std::string& name);
    // Of a folder, sorted; empty, too, if there is none.
    std::vector<std::string> names(const std::string& folder);
    bool exists(const std::string& name) const;
    // Of a file or folder, whatever names it has: another one of this machine has another number.
    uint64_t identity(const std::string& name) const;
    // Where a link leads in the end, from the root of all; empty: nowhere.
    std::string target(const std::string& link);
    // A sentence for each error that was met; few, however many files had it.
    std::vector<std::string> notes() const;

  private:
    void remember(const std::string& name, int error);
    std::string root_;
    std::vector<std::string> refused_;
    int more_ = 0;
};

}  // namespace weft::internal::topology
