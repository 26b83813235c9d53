// file_test.cpp: files that are read whole, and files that are refused.
#include "src/base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

TEST_CASE("a pipe without a writer is refused at once, and read if the caller asks for that", "[file]") {
    const Folder folder;
    const std::string pipe = folder.path / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const auto refused = read_file(pipe, 100);
    REQUIRE(!refused);
    CHECK_ERROR(refused, "file.unsuitable");
    CHECK(refused.status().sentence().rfind(pipe + " ", 0) == 0);
    std::thread writer([&] {
        const int fd = open(pipe.c_str(), O_WRONLY);
        CHECK(write(fd, "text", 4) == 4);
        close(fd);
    });
    const auto read = read_file(pipe, 100, Pipes::read);
    writer.join();
    REQUIRE(read);
    CHECK(*read == "text");
}

TEST_CASE("a file without end, a folder and a missing file are refused by name", "[file]") {
    CHECK_ERROR(read_file("/dev/zero", 1 << 20), "file.unsuitable");
    CHECK(read_file("/dev/null", 100)->empty());
    for (const std::string name : {"/", "/nowhere/at/all"}) {
        CHECK_ERROR(read_file(name, 100), "file.unreadable");
        CHECK(read_file(name, 100).status().sentence().rfind(name + " ", 0) == 0);
    }
}

}  // namespace weft::internal::test
