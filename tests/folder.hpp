// folder.hpp: a folder for the files of one test.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace weft::internal::test {

struct Folder {
    std::filesystem::path path;
    Folder() {
        std::string name = std::filesystem::temp_directory_path() / "weft_test_XXXXXX";
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
        path = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace weft::internal::test
