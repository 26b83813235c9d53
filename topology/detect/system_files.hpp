// system_files.hpp: reads /sys and /proc, or a folder in their place in tests. Missing files mean unknown. A denied
// access is remembered for a note.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::internal::topology {

// Replaces bytes that XML cannot contain by question marks; names of networks may have any bytes.
std::string printable(std::string text);

// Names are relative to the root, without a leading slash: "class/net". Thread-bound.
class SystemFiles {
  public:
    explicit SystemFiles(std::string root) : root_(std::move(root)) {}
    const std::string& root() const { return root_; }

    // Printable, without white space at its end. None: the file is missing or has no value now.
    std::optional<std::string> text(const std::string& name);
    std::optional<long long> number(const std::string& name);
    // Of a folder, sorted; empty also if it is missing.
    std::vector<std::string> names(const std::string& folder);
    bool exists(const std::string& name) const;
    // Of a file or folder under any name. Different files of this machine have different numbers.
    uint64_t identity(const std::string& name) const;
    // The final target of a link, from the root; empty: none.
    std::string target(const std::string& link);
    // A sentence for each kind of error, for any number of files.
    std::vector<std::string> notes() const;

  private:
    void remember(const std::string& name, int error);
    std::string root_;
    std::vector<std::string> refused_;
    int more_ = 0;
};

}  // namespace weft::internal::topology
