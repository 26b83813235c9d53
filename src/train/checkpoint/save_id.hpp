// save_id.hpp: the random id of one save. All its files have it, so that files of two saves are told apart.
#pragma once
#include <string>

namespace weft::internal::train {

// 64 random bits as hexadecimal digits. Rank 0 draws it.
std::string new_save_id();
// The name under which a file is written before it is complete. Other saves and exports have other drafts.
std::string draft_of(const std::string& file, const std::string& id);

}  // namespace weft::internal::train
