// impostors.cpp: a library that defines what others in a process may have: fmt, Expat, libsodium, OpenSSL, MPI, hwloc.
// Each function ends the process: a caller that has its own copy must never come here.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace {
[[noreturn]] void called(const char* name) {
    fprintf(stderr, "the process's %s was called\n", name);
    _Exit(70);
}
}  // namespace

namespace fmt {
std::string vformat(string_view, format_args) { called("fmt::vformat"); }
void vprint(string_view, format_args) { called("fmt::vprint"); }
void vprint(std::FILE*, string_view, format_args) { called("fmt::vprint"); }
}  // namespace fmt

#define IMPOSTOR(name) \
    extern "C" void name() { called(#name); }
IMPOSTOR(XML_ParserCreate)
IMPOSTOR(XML_Parse)
IMPOSTOR(XML_ParserFree)
IMPOSTOR(XML_SetElementHandler)
IMPOSTOR(XML_GetErrorCode)
IMPOSTOR(sodium_init)
IMPOSTOR(sodium_memcmp)
IMPOSTOR(crypto_auth_hmacsha256)
IMPOSTOR(crypto_auth_hmacsha256_init)
IMPOSTOR(crypto_auth_hmacsha256_update)
IMPOSTOR(crypto_auth_hmacsha256_final)
IMPOSTOR(crypto_hash_sha256)
IMPOSTOR(randombytes_buf)
IMPOSTOR(HMAC)
IMPOSTOR(EVP_Digest)
IMPOSTOR(EVP_DigestInit_ex)
IMPOSTOR(SHA256)
IMPOSTOR(RAND_bytes)
IMPOSTOR(MPI_Init)
IMPOSTOR(MPI_Comm_rank)
IMPOSTOR(MPI_Comm_size)
IMPOSTOR(MPI_Bcast)
IMPOSTOR(PMPI_Bcast)
IMPOSTOR(hwloc_topology_init)
IMPOSTOR(hwloc_topology_load)
