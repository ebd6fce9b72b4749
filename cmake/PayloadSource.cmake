# Pinned and patched sources for a CMake project.
#
#   payload_source(<component>)
#       Finds the component's source tree and sets, in the caller's scope, with NAME the component
#       in capitals and every other character an underscore (llama.cpp -> LLAMA_CPP):
#           <NAME>_SOURCE_DIR     stable link ${CMAKE_BINARY_DIR}/src/<component>
#           <NAME>_REF            the ref that was asked for (b11312)
#           <NAME>_COMMIT         full commit hash, or empty
#           <NAME>_BUILD_NUMBER   upstream's build number, 0 if it has none
#       The tree comes from -D<NAME>_SOURCE_DIR=... with -D<NAME>_REF, _COMMIT, _BUILD_NUMBER, _TREE
#       and _DEPENDS, as `payload build` passes them. These live for one configure: they leave the
#       cache once read, so that no later configure meets a stale one. Without them the tool is asked:
#       PAYLOAD_EXE (variable or environment), else payload on PATH, else `go run ./cmd/payload`.
#
#   payload_prebuilt(<component> <preset>)
#       Finds the files that upstream compiled of the component's pinned ref, for a preset, as payload.yaml
#       names them, and sets <NAME>_PREBUILT_DIR in the caller's scope: a link beside that of the source.
#       They come from -D<NAME>_PREBUILT_SOURCE_DIR=..., or the tool is asked, in the same way.
#
#   payload_add_subdirectory(<component> [EXCLUDE_FROM_ALL] [OUTPUTS <dir>...])
#       add_subdirectory of that tree into ${CMAKE_BINARY_DIR}/<component>. When the tree is another
#       one than at the last configure, that folder and OUTPUTS are removed first, and every cache
#       entry that upstream had added is unset: objects of another tree look up to date when its files
#       are older, and a cached option would keep a default that upstream has changed. Entries that a
#       preset or a person gave stay.

include_guard(GLOBAL)

# payload.lock, payload.yaml and the patches of every component lie at or below this folder.
function(_payload_root out)
  # file(GLOB) knows no escapes: ours, and those of most projects, would find nothing there.
  if("${CMAKE_CURRENT_SOURCE_DIR}${CMAKE_BINARY_DIR}" MATCHES "[][*?]")
    message(FATAL_ERROR
      "looking for sources in ${CMAKE_CURRENT_SOURCE_DIR}, to build in ${CMAKE_BINARY_DIR}: "
      "a folder is named with a bracket, * or ?, by which CMake finds no files; rename it")
  endif()
  set(dir "${CMAKE_CURRENT_SOURCE_DIR}")
  while(NOT EXISTS "${dir}/payload.yaml")
    cmake_path(GET dir PARENT_PATH parent)
    if(parent STREQUAL dir)
      message(FATAL_ERROR "looking for payload.yaml above ${CMAKE_CURRENT_SOURCE_DIR}: none found")
    endif()
    set(dir "${parent}")
  endwhile()
  set(${out} "${dir}" PARENT_SCOPE)
endfunction()

function(_payload_prefix component out)
  string(TOUPPER "${component}" name)
  string(REGEX REPLACE "[^A-Z0-9]" "_" name "${name}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# The command that runs the tool, and the folder to run it in.
function(_payload_command root out)
  if(PAYLOAD_EXE)
    set(exe "${PAYLOAD_EXE}")
  elseif(NOT "$ENV{PAYLOAD_EXE}" STREQUAL "")
    set(exe "$ENV{PAYLOAD_EXE}")
  else()
    find_program(exe payload NO_CACHE NO_CMAKE_FIND_ROOT_PATH)
    if(NOT exe)
      find_program(go go NO_CACHE NO_CMAKE_FIND_ROOT_PATH)
      if(go AND EXISTS "${root}/cmd/payload")
        set(exe "${go}" run ./cmd/payload)
      else()
        message(FATAL_ERROR
          "the payload tool is needed to find the sources: it is not on PATH, and `go run ./cmd/payload` "
          "needs Go and ${root}/cmd/payload\nSet PAYLOAD_EXE to the tool.")
      endif()
    endif()
  endif()
  set(${out} ${exe} PARENT_SCOPE)
endfunction()

# Asks the tool and sets path, ref, commit, build, patched and depends in the caller's scope. ARGN are
# further arguments.
function(_payload_ask component)
  _payload_root(root)
  _payload_command("${root}" command)
  list(JOIN command " " shown)
  foreach(word source ${component} --json ${ARGN})
    string(APPEND shown " ${word}")
  endforeach()
  # stderr goes through as it comes: fetching a tree takes a while and the tool tells about it.
  # The build folder is noted in the store, which then keeps the tree for as long as the link is there.
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "PAYLOAD_BUILD_DIR=${CMAKE_BINARY_DIR}" ${command} source "${component}" --json ${ARGN}
    WORKING_DIRECTORY "${root}"
    OUTPUT_VARIABLE json
    ERROR_VARIABLE errors ECHO_ERROR_VARIABLE
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "finding the sources of ${component}: `${shown}` in ${root} ended with ${result}:\n${errors}${json}")
  endif()
  foreach(key path ref commit build patched)
    string(JSON ${key} ERROR_VARIABLE missing GET "${json}" ${key})
    if(missing AND key STREQUAL "path")
      message(FATAL_ERROR "finding the sources of ${component}: `${shown}` printed no path: ${missing}\n${json}")
    elseif(missing)
      set(${key} "")
    endif()
    set(${key} "${${key}}" PARENT_SCOPE)
  endforeach()
  set(depends "")
  string(JSON last ERROR_VARIABLE missing LENGTH "${json}" depends)
  if(NOT missing AND last GREATER 0)
    math(EXPR last "${last} - 1")
    foreach(i RANGE ${last})
      string(JSON file GET "${json}" depends ${i})
      list(APPEND depends "${file}")
    endforeach()
  endif()
  set(depends "${depends}" PARENT_SCOPE)
endfunction()

# Points the link at the tree; a rename, so that nothing ever meets a missing link.
function(_payload_link link tree)
  if(IS_SYMLINK "${link}")
    file(READ_SYMLINK "${link}" current)
    if(current STREQUAL tree)
      return()
    endif()
  elseif(EXISTS "${link}")
    message(FATAL_ERROR "linking ${link} to ${tree}: a file or folder is in the way; remove it")
  endif()
  cmake_path(GET link PARENT_PATH dir)
  file(MAKE_DIRECTORY "${dir}")
  string(RANDOM LENGTH 8 suffix)
  file(CREATE_LINK "${tree}" "${link}.${suffix}" SYMBOLIC)
  file(RENAME "${link}.${suffix}" "${link}")
endfunction()

# Configures again when one of the files changes. A folder, and a patch, stand for all patches of the
# folder, so that one added later counts too.
function(_payload_depend files)
  set(folders "")
  foreach(file IN LISTS files)
    if(IS_DIRECTORY "${file}" OR file MATCHES "/$")
      string(REGEX REPLACE "/+$" "" file "${file}")
      list(APPEND folders "${file}")
      continue()
    elseif(file MATCHES "\\.patch$")
      cmake_path(GET file PARENT_PATH dir)
      list(APPEND folders "${dir}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(dir IN LISTS folders)
    file(GLOB patches CONFIGURE_DEPENDS "${dir}/*.patch")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patches})
  endforeach()
endfunction()

# Finds the tree of a component or, with further arguments for the tool, of something else that the
# tool keeps for it, as <NAME>_SOURCE_DIR with NAME made from what; sets path, ref, commit, build,
# patched, depends and link in the caller's scope.
function(_payload_find what component)
  _payload_prefix("${what}" name)
  set(link "${CMAKE_BINARY_DIR}/src/${what}")

  set(path "$CACHE{${name}_SOURCE_DIR}")
  if(path)
    set(ref "$CACHE{${name}_REF}")
    set(commit "$CACHE{${name}_COMMIT}")
    set(build "$CACHE{${name}_BUILD_NUMBER}")
    set(patched "$CACHE{${name}_TREE}")
    set(depends "$CACHE{${name}_DEPENDS}")
  else()
    _payload_ask("${component}" ${ARGN})
  endif()
  foreach(key SOURCE_DIR REF COMMIT BUILD_NUMBER TREE DEPENDS)
    unset(${name}_${key} CACHE)
  endforeach()
  if(NOT build MATCHES "^[0-9]+$")
    set(build 0)
  endif()

  if(NOT IS_DIRECTORY "${path}")
    message(FATAL_ERROR "using ${path} as the source of ${what}: no such folder")
  endif()
  # `payload build` makes the same link and passes it.
  string(REGEX REPLACE "/+$" "" path "${path}")
  if(NOT path STREQUAL link)
    file(REAL_PATH "${path}" path BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    _payload_link("${link}" "${path}")
  endif()

  _payload_root(root)
  _payload_depend("${root}/payload.yaml;${depends}")
  foreach(result ref commit build patched link)
    set(${result} "${${result}}" PARENT_SCOPE)
  endforeach()
endfunction()

function(payload_source component)
  _payload_prefix("${component}" name)
  _payload_find("${component}" "${component}")

  # The last option that fits wins, and each folder lies in the one before.
  _payload_root(root)
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    foreach(map "${root}=." "${CMAKE_BINARY_DIR}=build" "${link}=${component}")
      add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX,OBJC,OBJCXX>:-ffile-prefix-map=${map}>")
    endforeach()
  endif()

  string(SUBSTRING "${commit}" 0 12 short)
  message(STATUS "Source of ${component}: ${ref} ${short}")
  set_property(DIRECTORY PROPERTY _payload_${name}_tree "${patched}")
  set(${name}_SOURCE_DIR "${link}" PARENT_SCOPE)
  set(${name}_REF "${ref}" PARENT_SCOPE)
  set(${name}_COMMIT "${commit}" PARENT_SCOPE)
  set(${name}_BUILD_NUMBER "${build}" PARENT_SCOPE)
endfunction()

function(payload_prebuilt component preset)
  _payload_prefix("${component}" name)
  _payload_find("${component}.prebuilt" "${component}" --prebuilt "${preset}")
  message(STATUS "Prebuilt ${component}: ${ref}")
  set(${name}_PREBUILT_DIR "${link}" PARENT_SCOPE)
endfunction()

# True when the tree is another one than at the last configure. The note about the last one lies
# outside CMakeCache.txt and CMakeFiles, which `cmake --fresh` removes while objects stay.
function(_payload_changed component tree out)
  file(REAL_PATH "${CMAKE_BINARY_DIR}/src/${component}" path)
  set(note "${CMAKE_BINARY_DIR}/src/${component}.tree")
  set(changed TRUE)
  if(EXISTS "${note}")
    file(STRINGS "${note}" last)
    list(POP_FRONT last last_path last_tree)
    if(NOT tree STREQUAL "" AND NOT last_tree STREQUAL "")
      if(tree STREQUAL last_tree)
        set(changed FALSE)
      endif()
    elseif(path STREQUAL last_path)
      set(changed FALSE)
    endif()
  endif()
  set(${out} ${changed} PARENT_SCOPE)
  set(_payload_note "${path}\n${tree}\n" PARENT_SCOPE)
endfunction()

# Which cache entries are upstream's: every one that came with its add_subdirectory, unless it was
# given on the command line or by a preset since, or edited. <NAME>_CACHE holds them as
# name=digest-of-value; <NAME>_PENDING, all names before, is there while upstream configures, so that
# what a configure that failed left behind still counts.
function(_payload_cache_owned name out)
  get_cmake_property(names CACHE_VARIABLES)
  set(owned "")
  foreach(entry IN LISTS _payload_${name}_cache)
    string(REGEX MATCH "^(.*)=([0-9a-f]*)$" entry "${entry}")
    set(var "${CMAKE_MATCH_1}")
    set(digest "${CMAKE_MATCH_2}")
    string(MD5 now "$CACHE{${var}}")
    if(var IN_LIST names AND now STREQUAL digest)
      list(APPEND owned "${var}")
    endif()
  endforeach()
  if(DEFINED _payload_${name}_pending)
    list(APPEND owned ${names})
    list(REMOVE_ITEM owned ${_payload_${name}_pending})
    list(REMOVE_DUPLICATES owned)
  endif()
  set(kept "")
  foreach(var IN LISTS owned)
    get_property(help CACHE "${var}" PROPERTY HELPSTRING)
    if(NOT help STREQUAL "No help, variable specified on the command line.")
      list(APPEND kept "${var}")
    endif()
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()

function(_payload_cache_record name vars)
  set(record "")
  foreach(var IN LISTS vars)
    string(MD5 digest "$CACHE{${var}}")
    list(APPEND record "${var}=${digest}")
  endforeach()
  set(_payload_${name}_cache "${record}" CACHE INTERNAL "cache entries added by upstream")
endfunction()

macro(payload_add_subdirectory component)
  cmake_parse_arguments(_payload "EXCLUDE_FROM_ALL" "" "OUTPUTS" ${ARGN})
  _payload_prefix("${component}" _payload_name)
  get_property(_payload_tree DIRECTORY PROPERTY _payload_${_payload_name}_tree)
  _payload_changed("${component}" "${_payload_tree}" _payload_other)
  _payload_cache_owned("${_payload_name}" _payload_owned)
  if(_payload_other)
    foreach(_payload_dir "${CMAKE_BINARY_DIR}/${component}" ${_payload_OUTPUTS})
      if(EXISTS "${_payload_dir}")
        message(STATUS "Source of ${component} changed: removing ${_payload_dir}")
        file(REMOVE_RECURSE "${_payload_dir}")
      endif()
    endforeach()
    foreach(_payload_var IN LISTS _payload_owned)
      unset(${_payload_var} CACHE)
    endforeach()
    set(_payload_owned "")
    file(WRITE "${CMAKE_BINARY_DIR}/src/${component}.tree" "${_payload_note}")
  endif()

  _payload_cache_record("${_payload_name}" "${_payload_owned}")
  get_cmake_property(_payload_before CACHE_VARIABLES)
  set(_payload_${_payload_name}_pending "${_payload_before}" CACHE INTERNAL "cache entries before upstream's")
  if(_payload_EXCLUDE_FROM_ALL)
    add_subdirectory("${CMAKE_BINARY_DIR}/src/${component}" "${CMAKE_BINARY_DIR}/${component}" EXCLUDE_FROM_ALL)
  else()
    add_subdirectory("${CMAKE_BINARY_DIR}/src/${component}" "${CMAKE_BINARY_DIR}/${component}")
  endif()
  get_cmake_property(_payload_after CACHE_VARIABLES)
  list(REMOVE_ITEM _payload_after ${_payload_before} _payload_${_payload_name}_pending)
  unset(_payload_${_payload_name}_pending CACHE)
  list(APPEND _payload_owned ${_payload_after})
  _payload_cache_record("${_payload_name}" "${_payload_owned}")
endmacro()
