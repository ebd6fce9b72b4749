# CMake reads this for each language once it knows the compiler, before it takes over its flags.
string(REPLACE "-nostdlib++" "" CMAKE_CXX_FLAGS_INIT "${CMAKE_CXX_FLAGS_INIT}")
if(NOT CMAKE_CXX_FLAGS_INIT MATCHES "system_libcxx.h")
  string(APPEND CMAKE_CXX_FLAGS_INIT " -include ${CMAKE_CURRENT_LIST_DIR}/system_libcxx.h")
endif()

# On a Mac it asks the system's version, and has search paths since 10.5.
foreach(lang C CXX)
  set(CMAKE_SHARED_LIBRARY_RUNTIME_${lang}_FLAG "-Wl,-rpath,")
  set(CMAKE_EXECUTABLE_RUNTIME_${lang}_FLAG "-Wl,-rpath,")
endforeach()
