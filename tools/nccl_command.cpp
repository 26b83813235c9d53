#include "tools/nccl_command.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/printing.hpp"

namespace weft::internal::tools {
namespace {

namespace fs = std::filesystem;

// Where the library can be if the command is in `commands`.
std::vector<fs::path> nccl_folders(const fs::path& commands) {
#ifdef WEFT_PYTHON_FOLDER
    // pip puts packages into a folder of this name, or beside the commands' folder with --target.
    std::vector<fs::path> folders;
    for (const char* libraries : {"lib", "lib64"})
        for (const char* packages : {"site-packages", "dist-packages"})
            folders.push_back(commands / ".." / libraries / WEFT_PYTHON_FOLDER / packages / WEFT_NCCL_IN_PACKAGE);
    folders.push_back(commands / ".." / WEFT_NCCL_IN_PACKAGE);
    return folders;
#else
    // The folder of an installation, or that of the build.
    return {commands / WEFT_LIBRARY_FOLDER / "weft-nccl", commands.parent_path() / "src" / "nccl"};
#endif
}

int print_nccl_folder() {
    std::error_code unseen;
    const fs::path self = fs::read_symlink("/proc/self/exe", unseen);
    std::string tried;
    for (const fs::path& folder : nccl_folders(self.parent_path())) {
        const std::string name = folder.lexically_normal().string();
        if (fs::exists(folder / "libnccl.so.2", unseen)) {
            print_output("{}\n", name);
            return 0;
        }
        tried += (tried.empty() ? "" : " or ") + name;
    }
    print_error("weft nccl-path: no libnccl.so.2 is in {}; build Weft with -Dnccl=enabled\n", tried);
    return 1;
}

}  // namespace

void add_nccl_command(CLI::App& app, int& exit_status) {
    CLI::App* command = app.add_subcommand(
        "nccl-path", "Prints the folder of Weft's libnccl.so.2: LD_LIBRARY_PATH=$(weft nccl-path) PROGRAM");
    command->callback([&exit_status] { exit_status = print_nccl_folder(); });
}

}  // namespace weft::internal::tools
